"""A recorded history of writes, reads, lists and watches, and whether a single log of versions explains all of it.

Every write has a value of its own. The API gives every change one version, and a list the version that it shows, so
the versions are the order in which everything must have happened (strict serializability): a write that was answered
before another operation began comes before it, a read shows the last write, a list at a version shows exactly what
the writes up to it have left, and a watch shows every change after its version once and in order. A write without an
answer, as after a crash, may have happened or not; if anything shows its value, it did. `history_play` records,
`problems` judges.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"


@dataclass(frozen=True)
class Write:
    key: str
    value: int
    """0 deletes."""
    expected: int
    """The version that it replaces; 0 where nothing must exist."""
    began: float
    ended: float = math.inf
    outcome: str = UNKNOWN
    version: int = 0
    """Known from the answer, but for deletions."""


@dataclass(frozen=True)
class Read:
    key: str
    began: float
    ended: float
    version: int = 0
    """0 if there is no such object."""
    value: int = 0


@dataclass(frozen=True)
class Listed:
    began: float
    ended: float
    version: int
    items: dict[str, tuple[int, int]]
    """Key → version and value."""
    is_current: bool = True
    """Asked for without a version."""


@dataclass(frozen=True)
class Event:
    type: str
    key: str
    version: int
    value: int


@dataclass
class Watched:
    """One watch, from its request to its end."""

    since: int
    events: list[Event] = field(default_factory=list)
    is_expired: bool = False
    """It was refused, since its version is too old."""
    until: int = 0
    """Its client has waited so long that it must have shown everything up to here."""


@dataclass
class History:
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    lists: list[Listed] = field(default_factory=list)
    watches: list[Watched] = field(default_factory=list)
    restarts: list[tuple[float, int]] = field(default_factory=list)
    """When, and the version that the new process began with."""
    max_changes: int = 0
    """How many changes the server keeps for watches and lists at a version."""


class _Log:
    """What happened at which version, from everything that was answered or seen."""

    def __init__(self, history: History) -> None:
        self.wrong: list[str] = []
        self.entries: dict[int, tuple[str, int]] = {}
        for write in history.writes:
            if write.version:
                self._add(write.version, write.key, write.value)
        for read in history.reads:
            self._add(read.version, read.key, read.value)
        for page in history.lists:
            for key, (version, value) in page.items.items():
                self._add(version, key, value)
        for watch in history.watches:
            for event in watch.events:
                self._add(event.version, event.key, event.value)
        self.versions = sorted(self.entries)
        self.by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for version in self.versions:
            key, value = self.entries[version]
            self.by_key[key].append((version, value))
        self._written = {write.value: write for write in history.writes if write.value}
        self.loose = self._loose_deletions(history)
        """Key → versions after which the object may be gone, although nothing has shown when."""

    def _add(self, version: int, key: str, value: int) -> None:
        if version and self.entries.setdefault(version, (key, value)) != (key, value):
            self.wrong.append(f"version {version} is {self.entries[version]} and {(key, value)}")

    def _loose_deletions(self, history: History) -> dict[str, set[int]]:
        loose: dict[str, set[int]] = defaultdict(set)
        for write in history.writes:
            is_possible = write.value == 0 and write.outcome != REFUSED
            if is_possible and self.after(write.key, write.expected)[1:] != (0,):
                loose[write.key].add(write.expected)
        return loose

    def at(self, key: str, version: int) -> tuple[int, int]:
        """Version and value of the last change of a key up to a version."""
        entries = self.by_key.get(key, [])
        position = bisect.bisect_right(entries, (version, math.inf))
        return entries[position - 1] if position else (0, 0)

    def after(self, key: str, version: int) -> tuple[int, int]:
        """Version and value of the first change of a key after a version; (0, -1) if there is none."""
        entries = self.by_key.get(key, [])
        position = bisect.bisect_right(entries, (version, math.inf))
        return entries[position] if position < len(entries) else (0, -1)

    def began(self, value: int) -> float:
        write = self._written.get(value)
        return write.began if write is not None else 0.0

    def expected(self, value: int) -> int:
        write = self._written.get(value)
        return write.expected if write is not None else 0

    def between(self, since: int, until: int) -> list[int]:
        return self.versions[bisect.bisect_right(self.versions, since) : bisect.bisect_right(self.versions, until)]


def problems(history: History) -> list[str]:
    log = _Log(history)
    return [
        *log.wrong,
        *_wrong_writes(history.writes, log),
        *_wrong_order(history, log),
        *(wrong for page in history.lists for wrong in _wrong_list(page, log)),
        *(wrong for watch in history.watches for wrong in _wrong_watch(watch, log, history)),
    ]


def _wrong_writes(writes: Iterable[Write], log: _Log) -> Iterator[str]:
    for write in writes:
        if write.outcome == OK and write.version:
            before, value = log.at(write.key, write.version - 1)
            is_gone = value == 0 or before in log.loose[write.key]
            if write.expected and before != write.expected:
                yield f"{write} replaced version {before}"
            elif not write.expected and not is_gone:
                yield f"{write} created what existed as of version {before}"
        elif write.outcome == OK:
            next_version, value = log.after(write.key, write.expected)
            if value > 0 and log.expected(value) == write.expected:
                yield f"{write} deleted what version {next_version} has replaced"
        elif write.outcome == REFUSED and write.expected and write.expected not in log.loose[write.key]:
            next_version, value = log.after(write.key, write.expected)
            if not next_version or log.began(value) > write.ended:
                yield f"{write} was refused although nothing had changed"


def _wrong_order(history: History, log: _Log) -> Iterator[str]:
    """Whatever was answered before an operation began is in what it shows."""
    answered: list[tuple[float, int]] = [(write.ended, write.version) for write in history.writes if write.version]
    answered += [(page.ended, page.version) for page in history.lists]
    answered += [(read.ended, read.version) for read in history.reads if read.version]
    answered.sort()
    times = [ended for ended, _ in answered]
    newest: list[int] = []
    for _, version in answered:
        newest.append(max(version, newest[-1] if newest else 0))

    def known_before(moment: float) -> int:
        position = bisect.bisect_left(times, moment)
        return newest[position - 1] if position else 0

    for write in history.writes:
        if write.version and write.version <= known_before(write.began):
            yield f"{write} comes before version {known_before(write.began)}, which was answered before it began"
    for page in history.lists:
        if page.is_current and page.version < known_before(page.began):
            yield f"a list at version {page.version} is older than version {known_before(page.began)}"
    for moment, version in history.restarts:
        if version < known_before(moment):
            yield f"after a restart the version is {version}, and {known_before(moment)} was answered before"
    yield from _wrong_reads(history, log)


def _wrong_reads(history: History, log: _Log) -> Iterator[str]:
    answered: dict[str, list[Write]] = defaultdict(list)
    for write in history.writes:
        if write.outcome == OK:
            answered[write.key].append(write)
    for read in history.reads:
        if log.began(read.value) > read.ended:
            yield f"{read} shows a write that had not begun"
        for write in answered[read.key]:
            if write.ended >= read.began:
                continue
            if write.version > read.version and not _is_gone_after(write, read, log):
                yield f"{read} is older than {write}"
            if not write.version and read.version == write.expected:
                yield f"{read} shows what {write} had deleted"


def _is_gone_after(write: Write, read: Read, log: _Log) -> bool:
    """Whether a read that shows nothing is right: the object was deleted later than this write."""
    if read.version:
        return False
    entries = [entry for entry in log.by_key[write.key] if entry[0] >= write.version]
    return any(value == 0 or version in log.loose[write.key] for version, value in entries)


def _wrong_list(page: Listed, log: _Log) -> Iterator[str]:
    for key in {*log.by_key, *page.items}:
        version, value = log.at(key, page.version)
        shown = page.items.get(key, (0, 0))
        is_right = shown == (version, value) if value else shown == (0, 0)
        if not is_right and not (shown == (0, 0) and version in log.loose[key]):
            yield f"a list at version {page.version} shows {key} as {shown}, and it was {(version, value)}"


def _wrong_watch(watch: Watched, log: _Log, history: History) -> Iterator[str]:
    if watch.is_expired:
        later = len(log.between(watch.since, log.versions[-1] if log.versions else 0))
        is_restarted = any(watch.since < version for _, version in history.restarts)
        unseen = sum(1 for write in history.writes if write.outcome == UNKNOWN) + sum(map(len, log.loose.values()))
        if not is_restarted and later + unseen < history.max_changes:
            yield f"a watch since version {watch.since} was too old after {later} changes"
        return
    shown = [event.version for event in watch.events]
    if shown != sorted(set(shown)):
        yield f"a watch shows changes twice or out of order: {shown}"
    end = max([watch.since, watch.until, *shown])
    expected = log.between(watch.since, end)
    if shown != expected:
        missing = sorted({*expected} - {*shown})
        yield f"a watch since version {watch.since} to {end} misses {missing[:5]} of {len(expected)} changes"
    for write in history.writes:
        if (
            write.outcome == OK
            and not write.value
            and write.expected in log.loose[write.key]
            and watch.since <= write.expected
        ):
            next_version = log.after(write.key, write.expected)[0]
            if watch.until or 0 < next_version <= end:
                yield f"a watch since version {watch.since} to {end} misses {write}"
    for event in watch.events:
        before, value = log.at(event.key, event.version - 1)
        was_there = value != 0 and before not in log.loose[event.key]
        is_new = event.type == "ADDED"
        if is_new == was_there and before not in log.loose[event.key]:
            yield f"{event}, and before it was {(before, value)}"
