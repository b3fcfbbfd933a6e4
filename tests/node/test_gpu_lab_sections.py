"""`tools/gpu/kubelet.py` on a GPU that is lent: what changes its settings is not run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import until
from tools.gpu import kubelet
from tools.gpu.kubelet import CHANGES_SETTINGS, SECTIONS, SETTINGS, Recorder
from tools.gpu.node_lab import running_programs


class Lab:
    """Remembers the labels that the node is given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def label(self, name: str, value: str | None) -> None:
        self.given.append(name)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """What nvidia-smi was asked for; nothing of this machine is looked at or removed."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(kubelet, "MIG_FILE", tmp_path / "lab/mig.yaml")
    monkeypatch.setattr(kubelet, "running_programs", lambda name: [])
    monkeypatch.setattr(kubelet, "smi", lambda *arguments: asked.append(arguments) or "Disabled, Default")
    return asked


def test_settings_are_kept(asked: list[tuple[str, ...]], tmp_path: Path) -> None:
    lab: Any = Lab()
    recorder = Recorder(lab, tmp_path, simulated=False, keep_settings=True)
    assert recorder.sections(list(SECTIONS)) == ["agent", "compute", "envvar", "slicing", "xid"]
    assert recorder.clean()["MIG and compute mode"] == "Disabled, Default"
    assert "mig.config" not in lab.given
    assert set(asked) == {SETTINGS}, "they are read and never written"


def test_without_that_everything_is_run_and_mig_is_off_at_the_end(asked: list[tuple[str, ...]], tmp_path: Path) -> None:
    lab: Any = Lab()
    recorder = Recorder(lab, tmp_path, simulated=False, keep_settings=False)
    assert set(CHANGES_SETTINGS) < set(recorder.sections(list(SECTIONS)))
    recorder.clean()
    assert "mig.config" in lab.given


def test_a_program_is_known_by_its_name_and_not_by_what_it_was_told(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-fake-mps-control"
    shutil.copy("/bin/sleep", program)
    teller = subprocess.Popen(["nvidia-fake-mps-control", "1000"], executable="/bin/sleep")
    daemon = subprocess.Popen([str(program), "1000"])
    try:
        until(lambda: (Path("/proc") / str(daemon.pid) / "comm").read_text() == "nvidia-fake-mps\n", what="it runs")
        until(lambda: (Path("/proc") / str(daemon.pid) / "cmdline").read_text() != "", what="it has its words")
        assert running_programs("nvidia-fake-mps") == [daemon.pid]
    finally:
        for process in (teller, daemon):
            process.kill()
    teller.wait()
    until(lambda: (Path("/proc") / str(daemon.pid) / "cmdline").read_text() == "", what="it has ended")
    assert running_programs("nvidia-fake-mps") == [], "what nobody has waited for yet doesn't count"
    daemon.wait()
