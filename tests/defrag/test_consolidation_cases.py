"""The consolidation suite made from KAI's tests, by its own scorer, in this process."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest

from windlass.cli.defrag_document import defrag_document
from windlass.cli.plan_document import plan_document
from windlass.defrag import DefragRequest, defrag_plan
from windlass.dump.cluster import load_cluster
from windlass.model.configuration import Settings
from windlass.planner import engine_plan

pytestmark = pytest.mark.cases
GOAL = 0.9


def answer(words, **_):
    """What the command line would print."""
    loaded = load_cluster(Path(words[words.index("--from") + 1]))
    if "defrag" in words:
        plan = defrag_plan(loaded.objects, Settings(), loaded.newest, DefragRequest())
        document = defrag_document(plan, loaded.newest)
    else:
        decided, notes = engine_plan(loaded.objects, Settings(), loaded.newest)
        document = plan_document(decided, loaded.newest, notes)
    return types.SimpleNamespace(returncode=0, stdout=json.dumps(document), stderr="")


@pytest.fixture(scope="module")
def scorer(cases_dir):
    path = cases_dir / "engine" / "kai" / "score.py"
    spec = importlib.util.spec_from_file_location("kai_score_for_defrag", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.subprocess = types.SimpleNamespace(run=answer, TimeoutExpired=TimeoutError)
    yield module
    del sys.modules[spec.name]


def test_consolidation(scorer, cases_dir):
    options = types.SimpleNamespace(
        cmd="windlass plan schedule --from {objects} -o json",
        defrag_cmd="windlass plan defrag --from {objects} -o json",
        timeout=20,
        rounds=3,
    )
    folders = sorted((cases_dir / "engine" / "kai" / "consolidation").glob("*/expect.json"))
    results = [scorer.score_case(path.parent, options) for path in folders]
    broken = {result["case"]: result["violations"] for result in results if result["violations"]}
    assert not broken
    scored = [result for result in results if result["score"] == "exact"]
    wrong = {result["case"]: result["differences"] for result in scored if result["outcome"] != "exact"}
    assert len(scored) >= 38
    assert len(wrong) <= (1 - GOAL) * len(scored), wrong
