"""Variants of the peers' cases come out like the cases: names, UIDs, order, time and bystanders change nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.peers.scorers import Peer, is_scored
from tests.peers.test_peer_cases import KAI, KUEUE
from tests.peers.variants import write_variant

pytestmark = pytest.mark.cases
SEED = os.environ.get("WINDLASS_SEED", "1")
"""Printed with every failure; another one draws other variants."""
ROUNDS = int(os.environ.get("WINDLASS_VARIANTS", "1"))


@pytest.mark.parametrize(
    ("name", "suite"), [*(("kueue", suite) for suite in KUEUE), *(("kai", suite) for suite in KAI)]
)
def test_variants_of_a_suite(name: str, suite: str, cases_dir: Path, tmp_path: Path) -> None:
    peer = Peer(cases_dir, name)
    found: dict[str, list[str]] = {}
    for case in peer.cases(suite):
        if is_scored(case) and not peer.score(case).differences:
            for turn in range(ROUNDS):
                seed = f"{SEED}/{turn}"
                variant = write_variant(case, name, seed, tmp_path / str(turn))
                score = peer.score(variant)
                if score.differences or score.violations:
                    found[f"{score.case}, seed {seed}"] = [*score.differences, *score.violations]
    assert found == {}
