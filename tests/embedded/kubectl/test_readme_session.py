"""The kubectl commands of the README, typed as they stand there on `windlass up`.

They ask for GPUs, which the real control plane of the tests has none of; the same verbs run on both in `session/`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.embedded.cluster_up import Up
from tests.embedded.kubectl.servers import Place, environment, kubectl_at_hand
from tests.embedded.kubectl.transcript import execute
from tests.real_cluster.binaries import Binaries

ROOT = Path(__file__).resolve().parents[3]


def commands() -> list[str]:
    blocks = re.findall(r"^```sh-session\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ kubectl ")]


def test_the_readmes_kubectl_session(windlass_up: Up, binaries: Binaries, tmp_path: Path) -> None:
    place = Place(kubectl_at_hand(binaries.path("kubectl")), windlass_up.kubeconfig, "", "")
    known = environment(place, "readme", tmp_path)
    execute(f"kubectl create namespace {known['NS']}", tmp_path, known)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    typed = commands()
    assert len(typed) >= 6
    said = {}
    for command in typed:
        outcome = execute(command, tmp_path, known)
        assert outcome.code == 0, f"{command}\n{outcome.output}"
        said[command] = outcome.output
    assert any("NVIDIA H100 80GB HBM3" in output for output in said.values()), said
    assert any(re.search(r"^first +1/1 +Running", output, re.MULTILINE) for output in said.values()), said
