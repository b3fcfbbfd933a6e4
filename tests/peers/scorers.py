"""The peers' cases by their own scorers, in this process: where a scorer would start a command, the engine is called.

A case is a folder with objects, expectations and perhaps a configuration; `variants` makes more of such folders.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from windlass.cli.defrag_document import defrag_document
from windlass.cli.plan_document import plan_document
from windlass.defrag import DefragRequest, defrag_plan
from windlass.dump.cluster_loader import load_cluster
from windlass.dump.configuration import load_configuration_file
from windlass.model.configuration import Settings
from windlass.planner import plan_objects

Json = dict[str, Any]
Rewrite = Callable[[list[Json]], list[Json]]


class Score(NamedTuple):
    case: str
    """Suite and name."""
    counts: bool
    """Whether an outcome is expected; the rules of safety hold in any case."""
    differences: list[str]
    violations: list[str]


class Peer:
    """Kueue's or KAI's cases."""

    def __init__(self, cases_dir: Path, name: str, rewrite: Rewrite | None = None) -> None:
        """`rewrite`: what the engine is given in place of a case's objects."""
        self.name = name
        self.folder = cases_dir / "engine" / name
        self._scorer = _load(self.folder / "score.py", f"score_of_{name}")
        self._scorer.subprocess = SimpleNamespace(run=functools.partial(_answer, rewrite), TimeoutExpired=TimeoutError)  # type: ignore[attr-defined]

    def suites(self) -> list[str]:
        return sorted({path.parents[1].name for path in self.folder.glob("*/*/expect.json")})

    def cases(self, suite: str) -> list[Path]:
        return [path.parent for path in sorted((self.folder / suite).glob("*/expect.json"))]

    def score(self, case: Path) -> Score:
        return self._kueue(case) if self.name == "kueue" else self._kai(case)

    def _kueue(self, case: Path) -> Score:
        """Its scorer passes over what it expects nothing of; here no node may be overfilled even then."""
        options = SimpleNamespace(cmd=self._scorer.DEFAULT_CMD, timeout=20, strict_held=True, loose=False, jobs=1)
        found = self._scorer.run_case(str(case), options)
        title = f"{case.parent.name}/{case.name}"
        if found["status"] == "skip":
            return Score(title, counts=False, differences=[], violations=self._overfilled(case))
        return Score(title, counts=True, differences=found["diffs"], violations=[])

    def _overfilled(self, case: Path) -> list[str]:
        """Nodes that the plan would overfill; for scored cases that is part of the comparison."""
        configured = case / "config.yaml"
        words = ["plan", "--from", str(case / "objects.json")]
        plan = _plan([*words, "--config", str(configured)] if configured.exists() else words)
        world = self._scorer.World(read_json(case / "objects.json"))
        placed = [
            (one["workload"], part["name"], part.get("nodes") or {})
            for one in plan["decisions"]
            if one["decision"] == "admit" and not one["after"] and one["workload"] in world.workloads
            for part in one["podSets"]
        ]
        return list(self._scorer.capacity_problems(world, placed))

    def _kai(self, case: Path) -> Score:
        options = SimpleNamespace(
            cmd="windlass plan schedule --from {objects} -o json",
            defrag_cmd="windlass plan defrag --from {objects} -o json",
            timeout=20,
            rounds=3,
        )
        found = self._scorer.score_case(case, options)
        title = f"{case.parent.name}/{case.name}"
        broken = found["violations"] + (found["differences"] if found["outcome"] == "crashed" else [])
        return Score(title, found["score"] == "exact", found["differences"], broken)


def read_json(path: Path) -> Json:
    document: Json = json.loads(path.read_text())
    return document


def is_scored(case: Path) -> bool:
    return bool(read_json(case / "expect.json")["score"] == "exact")


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _answer(rewrite: Rewrite | None, words: Sequence[str], **_: object) -> SimpleNamespace:
    if rewrite is None:
        return SimpleNamespace(returncode=0, stdout=json.dumps(_plan(words)), stderr="")
    at = words.index("--from") + 1
    document = read_json(Path(words[at]))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as rewritten:
        json.dump({**document, "items": rewrite(document["items"])}, rewritten)
        rewritten.flush()
        changed = [*words[:at], rewritten.name, *words[at + 1 :]]
        return SimpleNamespace(returncode=0, stdout=json.dumps(_plan(changed)), stderr="")


def _plan(words: Sequence[str]) -> Json:
    """What the command line would print."""
    loaded = load_cluster(Path(words[words.index("--from") + 1]))
    settings = Settings()
    if "--config" in words:
        settings = load_configuration_file(Path(words[words.index("--config") + 1])).settings
    if "defrag" in words:
        moves = defrag_plan(loaded.objects, settings, loaded.newest_timestamp, DefragRequest())
        return defrag_document(moves, loaded.newest_timestamp)
    decided, notes = plan_objects(loaded.objects, settings, loaded.newest_timestamp)
    return plan_document(decided, loaded.newest_timestamp, notes)
