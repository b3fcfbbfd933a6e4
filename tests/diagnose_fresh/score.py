"""Asks `why` about every case and counts its answers.

    python -m tests.diagnose_fresh.score [FOLDER] [--only F02,C01] [-v]

FOLDER has dumps with an `expected.json` each; without it, the scenes beside this file are asked about. right: the
established code, or one that the case accepts; near: a true link of the chain that is not the cause; unknown: UNKNOWN;
wrong: anything else. Controls (C..) are healthy or only wait, and are counted apart. Variants are counted by letter:
a and b like the case; c (decisive evidence removed) is held back if the answer is UNKNOWN or of low confidence, shallow
if it is a true but incomplete link said with high confidence, named if it is the established cause all the same, else
overconfident; d (repaired) is clear if the answer is NONE.
"""

from __future__ import annotations

import argparse
import collections
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.diagnose_fresh.cases import EIGHTH, NINTH, PRACTICE, SCENES, SECOND, SIXTH, cases
from tests.diagnose_fresh.world import Obj

from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.why import why
from windlass.dump.files import newest_timestamp

GROUPS = ("cases", "controls", "a", "b", "c", "d")
GOOD = ("right", "held back", "clear")


class Result(NamedTuple):
    want: Obj
    found: Diagnosis
    verdict: str
    seconds: float

    @property
    def group(self) -> str:
        return str(self.want.get("variant") or ("controls" if self.want["id"].startswith("C") else "cases"))

    @property
    def is_confidently_wrong(self) -> bool:
        return self.found.confidence == "high" and self.verdict in ("wrong", "overconfident", "blamed")


def ask(folder: Path, target: str) -> Diagnosis:
    kind, namespace, name = target.split("/")
    return why(load_evidence(folder), f"{kind}/{name}", namespace, newest_timestamp(folder))


def verdict(want: Obj, code: str, confidence: str) -> str:
    if want.get("variant") == "c":
        if code == "UNKNOWN" or confidence == "low":
            return "held back"
        if code == want["established"]:
            return "named"
        return "shallow" if code in want.get("shallow", []) else "overconfident"
    if want.get("variant") == "d":
        return "clear" if code == "NONE" else "blamed"
    if code == want["code"] or code in want.get("accept", []):
        return "right"
    if code in want.get("also", []):
        return "near"
    return "unknown" if code == "UNKNOWN" else "wrong"


def score(folders: Iterable[Path]) -> Iterator[Result]:
    for folder in folders:
        want = json.loads((folder / "expected.json").read_text())
        began = time.perf_counter()
        found = ask(folder, want["target"])
        yield Result(want, found, verdict(want, found.code, found.confidence), time.perf_counter() - began)


def write_cases(target: Path, scenes: Path = SCENES) -> list[Path]:
    """Writes the scenes' cases as dumps, and returns their folders."""
    folders = []
    for want, world in cases(scenes):
        world.write(target / want["id"], want)
        folders.append(target / want["id"])
    return folders


def counts(results: Iterable[Result]) -> dict[str, collections.Counter[str]]:
    """Group → verdict → number."""
    found: dict[str, collections.Counter[str]] = {group: collections.Counter() for group in GROUPS}
    for result in results:
        found[result.group][result.verdict] += 1
    return found


def report(results: list[Result], verbose: bool) -> None:
    for result in results:
        if verbose or result.verdict not in GOOD:
            want, found = result.want, result.found
            said = f"{found.code:28} {found.confidence:5} {result.verdict}"
            print(f"{want['id']:5} want {want.get('established', want['code']):28} got {said}")
            print(f"      {found.headline}")
    for group, counted in counts(results).items():
        total = sum(counted.values())
        if total:
            print(f"{group:9} {total:3}: " + ", ".join(f"{name} {count}" for name, count in sorted(counted.items())))
    right = [result for result in results if result.group in ("cases", "controls") and result.verdict == "right"]
    sure = sum(result.found.confidence == "high" for result in right)
    print(f"right answers with high confidence: {sure} of {len(right)}")
    wrong = [result.want["id"] for result in results if result.is_confidently_wrong]
    print(f"wrong with high confidence: {', '.join(wrong) or 'none'}")
    print(f"slowest {max((result.seconds for result in results), default=0):.1f} s")


SETS = {"first": SCENES, "second": SECOND, "sixth": SIXTH, "eighth": EIGHTH, "ninth": NINTH, "practice": PRACTICE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--set", choices=SETS, default="first", help="the set of scenes")
    parser.add_argument("--only", default="", help="ids, separated by commas")
    parser.add_argument("-v", action="store_true", help="print every case, not only those that are not right")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    with tempfile.TemporaryDirectory() as place:
        folders = sorted(args.folder.iterdir()) if args.folder else write_cases(Path(place), SETS[args.set])
        asked = [path for path in folders if (path / "expected.json").exists() and (not only or path.name in only)]
        report(list(score(asked)), args.v)


if __name__ == "__main__":
    main()
