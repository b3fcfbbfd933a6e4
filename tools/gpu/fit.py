"""How far the advice on sharing can be trusted: predicted against measured slow-down, one kind of work left out.

    python tools/gpu/fit.py [docs/records/h200-sharing.json]

The model has one constant, what a change of turns costs under time-slicing. It is fitted on all kinds of work but one,
and used on that one. Prints a table, and the median and the 90th percentile of the error for each way of sharing.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from windlass.model.gpu_models import mig_geometry_of_model  # noqa: E402  (the path comes first)
from windlass.sharing import advise  # noqa: E402
from windlass.sharing.advise import TenantLoad, predict_mig, predict_mps, predict_time_slicing  # noqa: E402

RECORD = ROOT / "docs" / "records" / "h200-sharing.json"
MOST_BANDWIDTH = 0.65
"""What DCGM_FI_PROF_DRAM_ACTIVE shows for the fastest copy there is on this GPU."""
PROFILES = {"mig-7": "1g.18gb", "mig-2": "3g.71gb", "mig-4": "1g.35gb"}
WAYS = (
    "time-slicing-2",
    "time-slicing-4",
    "time-slicing-7",
    "mps-2",
    "mps-4",
    "mps-7",
    "mps-7-unlimited",
    *PROFILES,
)


def load_of(kind: dict[str, Any]) -> TenantLoad:
    """What the exporter's counters say of a kind of work that runs alone."""
    counters = kind["counters"]
    busy = counters["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    return TenantLoad(
        busy=busy,
        multiprocessors=min(1.0, counters["DCGM_FI_PROF_SM_ACTIVE"] / busy),
        bandwidth=min(1.0, counters["DCGM_FI_PROF_DRAM_ACTIVE"] / busy / MOST_BANDWIDTH),
        request_us=kind["alone"]["p50_us"],
    )


def predict(load: TenantLoad, way: str) -> float:
    if way in PROFILES:
        geometry = mig_geometry_of_model("H200")
        profile = geometry.profile(PROFILES[way]) if geometry else None
        assert geometry is not None
        assert profile is not None
        return predict_mig(load, geometry, profile)
    name, _, count = way.removesuffix("-unlimited").rpartition("-")
    if name == "time-slicing":
        return predict_time_slicing(load, int(count))
    return predict_mps(load, int(count), limited=not way.endswith("unlimited"))


def measured(kind: dict[str, Any], way: str) -> float:
    return float(kind[way]["p50_us"] / kind["alone"]["p50_us"])


def fitted_turn(kinds: dict[str, Any]) -> float:
    """The constant that is least wrong about these kinds."""

    def wrong(turn: float) -> float:
        advise.TIME_SLICE_SWITCH_US = turn
        return sum(
            abs(math.log(predict(load_of(kind), way) / measured(kind, way)))
            for kind in kinds.values()
            for way in WAYS
            if way.startswith("time")
        )

    kept = advise.TIME_SLICE_SWITCH_US
    try:
        return min(range(0, 400, 5), key=wrong)
    finally:
        advise.TIME_SLICE_SWITCH_US = kept


def leave_one_out(kinds: dict[str, Any]) -> dict[tuple[str, str], tuple[float, float]]:
    """`(predicted, measured)` by kind and way, each kind predicted by what was fitted without it."""
    kept = advise.TIME_SLICE_SWITCH_US
    found = {}
    try:
        for name, kind in kinds.items():
            others = {other: each for other, each in kinds.items() if other != name}
            advise.TIME_SLICE_SWITCH_US = fitted_turn(others)
            for way in WAYS:
                found[name, way] = (predict(load_of(kind), way), measured(kind, way))
    finally:
        advise.TIME_SLICE_SWITCH_US = kept
    return found


def errors(found: dict[tuple[str, str], tuple[float, float]]) -> dict[str, list[float]]:
    """Relative errors by way of sharing, in order."""
    by_way: dict[str, list[float]] = {}
    for (_, way), (predicted, real) in found.items():
        name = "mps, no limits" if way.endswith("unlimited") else way.rpartition("-")[0]
        by_way.setdefault(name, []).append(abs(predicted / real - 1))
    return {name: sorted(each) for name, each in by_way.items()}


def main(path: Path) -> None:
    kinds = json.loads(path.read_text())["kinds"]
    found = leave_one_out(kinds)
    print(f"predicted/measured slow-down; turn fitted on all kinds: {fitted_turn(kinds):g} µs\n")
    print(f"{'':20}" + "".join(f"{way:>17}" for way in WAYS))
    for name in kinds:
        cells = [found[name, way] for way in WAYS]
        print(f"{name:20}" + "".join(f"{f'{predicted:.1f} / {real:.1f}':>17}" for predicted, real in cells))
    print()
    for name, each in errors(found).items():
        print(
            f"{name:16} median error {statistics.median(each):4.0%}, 90th percentile {each[int(0.9 * len(each))]:4.0%}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD)
