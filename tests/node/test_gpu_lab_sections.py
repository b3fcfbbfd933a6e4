"""`tools/gpu/kubelet.py` on a GPU that is lent: what changes its settings is not run."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tools.gpu import kubelet
from tools.gpu.kubelet import CHANGES_SETTINGS, SECTIONS, SETTINGS, Recorder


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
    nothing: Any = CompletedProcess((), 0, stdout="", stderr="")
    monkeypatch.setattr(kubelet.subprocess, "run", lambda *arguments, **options: nothing)
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
