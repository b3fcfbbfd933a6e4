"""Whoever reads a cluster that is frozen is told so: nothing of a plan is carried out there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from windlass.dump.cluster_loader import load_cluster
from windlass.kube.freeze import FROZEN, RUNNING, FreezeState, freeze_object


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (FreezeState(FROZEN, "2026-01-01T00:00:00Z", "ann", "odd evictions"), "since 2026-01-01T00:00:00Z by ann: odd"),
        (FreezeState("stopped"), "neither frozen nor running"),
        (FreezeState(RUNNING), ""),
    ],
)
def test_a_frozen_cluster_says_so(state: FreezeState, said: str, tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(freeze_object("windlass-system", state)))
    notes = load_cluster(file, ()).freeze_notes
    assert len(notes) == bool(said)
    assert all(said in note and "`windlass freeze --off -n windlass-system`" in note for note in notes)


def test_other_config_maps_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    other = freeze_object("windlass-system", FreezeState(FROZEN))
    other["metadata"]["name"] = "settings"
    file.write_text(yaml.safe_dump(other))
    assert load_cluster(file, ()).freeze_notes == ()
