"""The recordings on a real GPU: a section that fails makes the whole fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.gpu import agent, container

REAL = {agent: agent.Recorder.section, container: container.Recorder.section}


class Recorder:
    """A recorder whose first section fails, without hardware."""

    def __init__(self, section: Any, folder: Path) -> None:
        self.folder, self.log = folder, folder / "agent.log"
        self.record: dict[str, Any] = {}
        self.failed: list[str] = []
        self._section = section

    def section(self, name: str, run: Any) -> None:
        self._section(self, name, run)

    def __getattr__(self, name: str) -> Any:
        def run() -> str:
            if name in ("start", "spec"):
                raise TimeoutError("no GPU here")
            return "well"

        return run


@pytest.mark.parametrize("module", [agent, container])
def test_a_failed_section_is_the_exit_code(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Recorder", lambda folder: Recorder(REAL[module], folder))
    monkeypatch.setattr("sys.argv", ["x", "--out", str(tmp_path)])
    assert module.main() == 1
    record = json.loads((tmp_path / f"{module.__name__.rpartition('.')[2]}.json").read_text())
    assert "no GPU here" in json.dumps(record)
    assert "well" in json.dumps(record), "the other sections ran all the same"
