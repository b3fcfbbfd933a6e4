"""Arrival orders of the openb pod lists: the published ones, and our own by the same method.

Used by `traces.openb`. The method of the published experiments ("Beware of Fragmentation", USENIX ATC 2023): the pods,
sorted by name, are shuffled; then pods drawn at random, with replacement, are appended as long as the requested GPUs
stay within 130 % of the fleet's; a list that requests more is thinned out at random instead. Nodes get random ranks,
and ties between nodes go to the lowest rank.

The published experiments used Go's random generator; their orders are read from files (`pods SEED …` and `nodes
SEED …` lines, row numbers from 0). Ours use PCG64, so they are other samples of the same distribution.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import msgspec
import numpy as np

from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.simulate.random_stream import Ints, RandomStream

DEMAND_PERCENT = 130
PODS, NODES = 0, 1
"""Random streams of one seed, independent of each other."""


class Arrivals(msgspec.Struct, frozen=True):
    """Row numbers of the pod list in arrival order, and the rank of every node in order of their names."""

    rows: list[int]
    ranks: tuple[int, ...]
    order: str


def published_arrivals(path: Path, seed: int, pods: int, nodes: int) -> Arrivals | None:
    """The published order of this seed; None if the file has none."""
    rows = ranks = None
    for number, line in enumerate(_lines(path), start=1):
        kind, name, rest = [*line.split(" ", 2), "", ""][:3]
        if kind not in ("pods", "nodes") or not is_digits(name):
            raise InputError("expected `pods SEED …` or `nodes SEED …`", file=str(path), line=number)
        if int(name) != seed:
            continue
        if kind == "pods":
            rows = _numbers(path, number, rest, pods)
        else:
            ranks = _numbers(path, number, rest, nodes)
            if sorted(ranks) != list(range(nodes)):
                message = f"expected each of the ranks 0 to {nodes - 1} once"
                raise InputError(message, file=str(path), line=number)
    if rows is None or ranks is None:
        return None
    return Arrivals(rows=rows, ranks=tuple(ranks), order="published")


def generated_arrivals(names: list[str], demand: list[int], fleet_milli: int, nodes: int, seed: int) -> Arrivals:
    """Our own order; `demand` is the milli-GPUs of each row of the list, `fleet_milli` those of the fleet."""
    target = fleet_milli * DEMAND_PERCENT // 100
    draws = RandomStream(seed, PODS)
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    milli = np.array(demand, dtype=np.int64)[by_name]
    missing = target - int(milli.sum())
    order = draws.permutation(len(by_name))
    order = _thinned(order, milli, -missing, draws) if missing < 0 else _refilled(order, milli, missing, draws)
    ranks = RandomStream(seed, NODES).permutation(nodes)
    return Arrivals(rows=by_name[order].tolist(), ranks=tuple(ranks.tolist()), order="generated")


def _refilled(order: Ints, milli: Ints, missing: int, draws: RandomStream) -> Ints:
    """The order with randomly drawn pods appended, as long as their demand is at most `missing`."""
    if not milli.any():
        return order
    batch = 2 * int(missing * len(order) / milli.sum()) + 16
    drawn = order[:0]
    while milli[drawn].sum() <= missing:
        drawn = np.concatenate([drawn, draws.integers_below(len(order), batch)])
    return np.concatenate([order, drawn[np.cumsum(milli[drawn]) <= missing]])


def _thinned(order: Ints, milli: Ints, excess: int, draws: RandomStream) -> Ints:
    """The order without as many pods, removed at random, as reduce the demand by at least `excess`."""
    removal_order = draws.permutation(len(order))
    removed_milli = np.cumsum(milli[order[removal_order]])
    count = int(np.searchsorted(removed_milli, excess, side="left")) + 1
    is_kept = np.ones(len(order), dtype=bool)
    is_kept[removal_order[:count]] = False
    return order[is_kept]


def _lines(path: Path) -> list[str]:
    try:
        return gzip.decompress(path.read_bytes()).decode("ascii").splitlines()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"expected gzip text: {error}", file=str(path)) from error


def _numbers(path: Path, line: int, text: str, bound: int) -> list[int]:
    try:
        numbers = [int(field) for field in text.split()]
    except ValueError as error:
        raise InputError(f"expected whole numbers: {error}", file=str(path), line=line) from error
    if not numbers or min(numbers) < 0 or max(numbers) >= bound:
        raise InputError(f"expected numbers from 0 to {bound - 1}", file=str(path), line=line)
    return numbers
