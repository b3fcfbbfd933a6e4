#!/usr/bin/env python3
"""Asks `windlass why` about every case beside this file and counts its answers.

    python tests/diagnose_fresh/score.py [--windlass PATH] [--only F02,C01] [-v] [--out answers.json]

right: the established code, or one that the case accepts; near: a true link of the chain that is not the cause;
unknown: UNKNOWN; wrong: anything else. Controls (C..) are healthy or only wait, and are counted apart. Variants are
counted by letter: a and b like the case; c (decisive evidence removed) is held back if the answer is UNKNOWN or of low
confidence, shallow if it is a true but incomplete link said with high confidence, named if it is the established cause
all the same, else overconfident; d (repaired) is clear if the answer is NONE."""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shlex
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).parent


def ask(windlass: list[str], folder: pathlib.Path, target: str, limit: float) -> tuple[str, str, str]:
    """The code, the confidence and the headline."""
    kind, ns, name = target.split("/")
    command = [*windlass, "why", f"{kind}/{name}", "-n", ns, "--from", str(folder), "-o", "json"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "TIMEOUT", "-", ""
    if "Traceback" in run.stderr:
        return "TRACEBACK", "-", run.stderr.strip().splitlines()[-1]
    if not run.stdout.strip():
        return f"EXIT_{run.returncode}", "-", run.stderr.strip()[-160:]
    doc = json.loads(run.stdout)
    return doc.get("code", "?"), doc.get("confidence", "?"), doc.get("headline", "")


def verdict(want: dict[str, Any], code: str, confidence: str) -> str:
    if want.get("variant") == "c":
        if code == "UNKNOWN" or confidence == "low":
            return "held back"
        if code == want["established"]:
            return "named"
        return "shallow" if code in want.get("shallow", []) else "overconfident"
    if want.get("variant") == "d":
        return "clear" if code == "NONE" else "blamed"
    if code == want["code"] or code in want["accept"]:
        return "right"
    if code in want["also"]:
        return "near"
    return "unknown" if code == "UNKNOWN" else "wrong"


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--windlass", default=f"{sys.executable} -m windlass")
    ap.add_argument("--only", default="", help="ids, separated by commas")
    ap.add_argument("--timeout", type=float, default=60)
    ap.add_argument("--out", type=pathlib.Path, help="write every answer to this file")
    ap.add_argument("-v", action="store_true", help="print every case, not only those that are not right")
    args = ap.parse_args()
    only = set(filter(None, args.only.split(",")))
    count: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    high_wrong, slowest, answers = [], 0.0, []
    if not (HERE / "cases").exists():
        subprocess.run([sys.executable, str(HERE / "build.py")], check=True)
    for path in sorted((HERE / "cases").iterdir()):
        want = json.loads((path / "expected.json").read_text())
        if only and want["id"] not in only:
            continue
        began = time.perf_counter()
        code, confidence, headline = ask(shlex.split(args.windlass), path, want["target"], args.timeout)
        slowest = max(slowest, time.perf_counter() - began)
        result = verdict(want, code, confidence)
        group = want.get("variant") or ("controls" if want["id"].startswith("C") else "cases")
        count[group][result] += 1
        if result == "wrong" and confidence == "high" and group in ("cases", "controls"):
            high_wrong.append(want["id"])
        answers.append(
            {
                "id": want["id"],
                "want": want["code"],
                "got": code,
                "confidence": confidence,
                "verdict": result,
                "headline": headline,
            }
        )
        if args.v or result not in ("right", "held back", "clear"):
            print(f"{want['id']:5} want {want['code']:28} got {code:28} {confidence:5} {result}", flush=True)
    for group in ("cases", "controls", "a", "b", "c", "d"):
        if n := sum(count[group].values()):
            print(
                f"{group:9} {n:3}: "
                + ", ".join(f"{k} {count[group][k]} ({100 * count[group][k] / n:.0f} %)" for k in sorted(count[group]))
            )
    print(f"wrong with high confidence: {', '.join(high_wrong) or 'none'}; slowest {slowest:.1f} s")
    if args.out:
        args.out.write_text(json.dumps(answers, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
