"""A control plane for `windlass bench live`, until Ctrl-C: prints the options that name it and its programs.

python -m tests.real_cluster
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.real_cluster.binaries import Binaries
from tests.real_cluster.fixtures import started
from tests.real_cluster.recipes import CONTROL_PLANE


def main() -> None:
    binaries = Binaries(tell=lambda line: print(line, file=sys.stderr))
    binaries.build((*CONTROL_PLANE, "kube-scheduler", "kueue"))
    with tempfile.TemporaryDirectory(prefix="windlass-cluster-") as folder:
        plane = started(binaries, Path(folder))
        crds = binaries.source("kueue") / "config" / "components" / "crd" / "bases"
        print(
            f"--kubeconfig={plane.kubeconfig} --kube-scheduler={binaries.path('kube-scheduler')}"
            f" --kueue={binaries.path('kueue')} --kueue-crds={crds}",
            flush=True,
        )
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            plane.stop()


if __name__ == "__main__":
    main()
