"""Forty faults, ten at a time, on a running cluster: `why` names each at once and later, and its patches work.

    python -m tests.why_live --on up|kube [--pause 300] [--only taint,quota]

`up` is `windlass up` in a process of its own. `kube` is a real control plane with kube-scheduler and a loop that plays
the kubelets; faults that only Windlass's scheduler knows (queues, gangs) are left out there and counted.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.why_live.build import WINDLASS
from tests.why_live.clusters import cluster_on
from tests.why_live.faults import FAULTS
from tests.why_live.play import Verdict, play_batch

AT_A_TIME = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("up", "kube"), default="up")
    parser.add_argument("--pause", type=float, default=300, help="seconds between the two questions")
    parser.add_argument("--only", default="", help="names, separated by commas")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    faults = [fault for fault in FAULTS if not only or fault.name in only]
    left_out = [fault for fault in faults if options.on == "kube" and fault.scheduler == WINDLASS]
    faults = [fault for fault in faults if fault not in left_out]
    verdicts: list[Verdict] = []
    folder = Path(tempfile.mkdtemp(prefix="why-live-"))
    try:
        with cluster_on(options.on, folder) as cluster:
            for at in range(0, len(faults), AT_A_TIME):
                batch = faults[at : at + AT_A_TIME]
                verdicts += report(play_batch(cluster, batch, folder, lambda: time.sleep(options.pause)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    right = sum(verdict.is_right for verdict in verdicts)
    patched = sum(verdict.is_right and verdict.fault.remedy == "patch" for verdict in verdicts)
    print(f"{right} of {len(verdicts)} right, {patched} patches applied; asked at once and after {options.pause:g} s")
    if left_out:
        print(f"left out, since kube-scheduler knows neither queues nor gangs: {len(left_out)}")
    return 0 if right == len(verdicts) else 1


def report(verdicts: list[Verdict]) -> list[Verdict]:
    for verdict in verdicts:
        mark = "ok   " if verdict.is_right else "WRONG"
        print(f"{mark} {verdict.fault.name:16} {' then '.join(dict.fromkeys(verdict.said)):28} {verdict.fault.remedy}")
        if verdict.problem:
            print(f"      {verdict.problem}")
    sys.stdout.flush()
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
