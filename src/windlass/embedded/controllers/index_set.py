"""Indices of an Indexed Job as ranges: a Job may have two thousand million, and its status says so in a few bytes.

`job` and its neighbours use it instead of a set; nothing here takes time or memory in proportion to the indices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from windlass.embedded.api.numbers import parse_decimal

Range = tuple[int, int]
"""First and last."""


class IndexSet:
    """Immutable."""

    __slots__ = ("_ranges",)

    def __init__(self, indices: Iterable[int] = ()) -> None:
        self._ranges = _merge([(index, index) for index in indices])

    @classmethod
    def of_ranges(cls, ranges: list[Range]) -> IndexSet:
        made = cls()
        made._ranges = _merge([(first, last) for first, last in ranges if first <= last])
        return made

    @classmethod
    def parse(cls, text: str) -> IndexSet:
        """Parses `1,3-5,7`; parts that are no indices are ignored."""
        ranges = []
        for part in (text or "").split(","):
            first, dash, last = part.partition("-")
            ends = parse_decimal(first), parse_decimal(last if dash else first)
            if ends[0] is not None and ends[1] is not None:
                ranges.append((ends[0], ends[1]))
        return cls.of_ranges(ranges)

    def format(self) -> str:
        """Writes `1,3-5,7`; two neighbours are written `3,4`."""
        return ",".join(
            str(first) if first == last else f"{first}{'-' if last > first + 1 else ','}{last}"
            for first, last in self._ranges
        )

    def below(self, limit: int) -> IndexSet:
        """Without indices from a limit on."""
        return self.of_ranges([(first, min(last, limit - 1)) for first, last in self._ranges])

    def missing(self, limit: int, count: int) -> list[int]:
        """The first indices below a limit that are not in it."""
        found: list[int] = []
        start = 0
        for first, last in [*self._ranges, (limit, limit)]:
            found += range(start, min(first, limit, start + count - len(found)))
            start = max(start, last + 1)
            if len(found) >= count or start >= limit:
                break
        return found

    def __or__(self, other: IndexSet) -> IndexSet:
        return self.of_ranges([*self._ranges, *other._ranges])

    def __and__(self, other: IndexSet) -> IndexSet:
        common, mine, others = [], iter(self._ranges), iter(other._ranges)
        left, right = next(mine, None), next(others, None)
        while left is not None and right is not None:
            common.append((max(left[0], right[0]), min(left[1], right[1])))
            if left[1] < right[1]:
                left = next(mine, None)
            else:
                right = next(others, None)
        return self.of_ranges(common)

    def __sub__(self, other: IndexSet) -> IndexSet:
        if not self._ranges:
            return self
        gaps, start = [], 0
        for first, last in other._ranges:
            gaps.append((start, first - 1))
            start = last + 1
        gaps.append((start, max(start, self._ranges[-1][1])))
        return self & self.of_ranges(gaps)

    def __contains__(self, index: int) -> bool:
        position = bisect_right(self._ranges, index, key=lambda found: found[0]) - 1
        return position >= 0 and index <= self._ranges[position][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self._ranges:
            yield from range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._ranges == other._ranges

    __hash__ = None  # type: ignore[assignment]


def _merge(ranges: list[Range]) -> list[Range]:
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged
