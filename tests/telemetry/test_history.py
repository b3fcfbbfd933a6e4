"""History in a folder: what was written is read, once, whatever the clock, the disk and crashes do."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded.store.lossy_disk import FATES, Crash, LossyDisk

from windlass.storage.disk import Disk
from windlass.telemetry.history.folder import DAY_SECONDS, day_name, journal_name
from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.history.series_codec import MAX_VALUE, decode_values, encode_values
from windlass.telemetry.history.writer import HistoryWriter

STEP = 300
DAY = 20_000
START = DAY * DAY_SECONDS
NUMBERS = st.integers(-(2**63), 2**63)


class MemoryDisk(LossyDisk):
    """Beside what the state log needs: parts and lengths."""

    def read_part(self, name: str, offset: int, length: int) -> bytes:
        return self.read(name)[offset : offset + length]

    def length(self, name: str) -> int:
        return len(self.read(name))


def rows(count: int, first: int = 0) -> list[tuple[int, dict[str, int | None]]]:
    return [(START + (first + n) * STEP, {"a": first + n, "b": None if n % 3 else -n}) for n in range(count)]


def write(disk: Disk, written: list[tuple[int, dict[str, int | None]]], days: int = 30) -> HistoryWriter:
    writer = HistoryWriter(disk, STEP, days)
    for at, values in written:
        assert writer.append(at, values)
    return writer


def read(disk: Disk, name: str = "a", start: int = 0, end: int = 2**40) -> list[tuple[int, int]]:
    return HistoryReader(disk, STEP).points(name, start, end)


@given(st.dictionaries(st.integers(0, 2879), NUMBERS, max_size=80))
def test_every_block_comes_back(values: dict[int, int]) -> None:
    slots, found = decode_values(encode_values(values))
    assert slots == sorted(values)
    assert found == [max(-MAX_VALUE, min(values[slot], MAX_VALUE)) for slot in slots]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(-400, 800), st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(-9, 9), min_size=1)
        ),
        max_size=40,
    ),
    st.integers(0, 39),
)
def test_the_last_value_of_a_slot_counts_once(steps: list[tuple[int, dict[str, int | None]]], restart: int) -> None:
    """Times in any order, over several days, with a restart somewhere: a clock that steps back overwrites."""
    disk, expected = MemoryDisk(), {}
    writer = HistoryWriter(disk, STEP)
    for number, (slot, values) in enumerate(steps):
        if number == restart:
            writer = HistoryWriter(disk, STEP)
        assert writer.append(START + slot * STEP + number % STEP, values)
        expected |= {(name, START + slot * STEP): value for name, value in values.items() if value is not None}
    reader = HistoryReader(disk, STEP)
    found = {(name, at): value for name in "abc" for at, value in reader.points(name, 0, 2**40)}
    assert found == expected
    sums = {name: sum(value for (key, _), value in expected.items() if key == name) for name in "abc"}
    assert reader.sums(0, 2**40) == {
        name: total for name, total in sums.items() if any(key == name for key, _ in found)
    }
    first, last = START - 150 * STEP, START + 300 * STEP  # parts of days
    inside = {key for key in expected if first <= key[1] < last}
    assert reader.sums(first, last) == {
        name: sum(expected[key] for key in inside if key[0] == name) for name in {key[0] for key in inside}
    }


def test_a_day_that_is_closed_while_it_is_read_is_read_whole() -> None:
    class ClosesMeanwhile(MemoryDisk):
        has_closed = False

        def read(self, name: str) -> bytes:
            try:
                return super().read(name)
            finally:
                if not self.has_closed and name in (day_name(DAY), journal_name(DAY)):
                    self.has_closed = True
                    write(self, rows(1, first=288))

    disk = ClosesMeanwhile()
    disk.has_closed = True
    write(disk, rows(3))
    disk.has_closed = False
    assert len(read(disk, end=START + DAY_SECONDS)) == 3
    assert disk.has_closed


def test_gaps_are_left_out_and_never_zero() -> None:
    disk = MemoryDisk()
    write(disk, [*rows(3), *rows(2, first=10)])
    assert read(disk) == [(START + slot * STEP, slot) for slot in (0, 1, 2, 10, 11)]
    means = HistoryReader(disk, STEP).means("a", START, START + 12 * STEP, 3 * STEP)
    assert means == [(START, 1.0), (START + 9 * STEP, 10.5)]


@pytest.mark.parametrize("fate", FATES)
def test_after_a_crash_at_any_moment_all_that_was_synced_is_there_once(fate: str) -> None:
    """Over the end of a day, so that the crash may fall into closing it."""
    near_midnight = rows(4, first=286) + rows(3, first=290)
    written = [*near_midnight[:2], *near_midnight[2:]]
    whole = MemoryDisk()
    write(whole, written)
    for point in range(1, whole.points + 1):
        disk = MemoryDisk(crash_at=point)
        done: list[int] = []
        try:
            writer = HistoryWriter(disk, STEP)
            for at, values in written:
                writer.append(at, values)
                done.append(at)
        except Crash:
            pass
        after = MemoryDisk(disk.after_crash(fate))
        found = read(after)
        times = [at for at, _ in found]
        assert times == sorted(set(times))
        assert all((at - START) // STEP == value for at, value in found)
        assert set(times) >= set(done[:-1]), "a row is synced before the next one, which is 300 s later, is written"
        write(after, rows(1, first=600))
        assert len(read(after)) == len(found) + 1


def test_a_full_disk_loses_rows_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    writer = write(disk, rows(3))
    real = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        real(descriptor, bytes(data)[:7], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("windlass.storage.disk.os.pwrite", full)
    assert not writer.append(START + 3 * STEP, {"a": 3, "new": 1})
    assert not writer.append(START + DAY_SECONDS, {"a": 9})  # the day can't be closed either
    assert writer.lost_rows == 2
    monkeypatch.setattr("windlass.storage.disk.os.pwrite", real)
    assert writer.append(START + DAY_SECONDS + STEP, {"a": 10, "new": 2})
    assert [value for _, value in read(disk)] == [0, 1, 2, 10]
    assert read(disk, "new") == [(START + DAY_SECONDS + STEP, 2)]
    assert not any(name.endswith(".new") for name in disk.names())


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_damaged_file_costs_only_what_is_damaged(tmp_path: Path, is_closed: bool) -> None:
    disk = Disk(tmp_path)
    write(disk, rows(288) + (rows(1, first=288) if is_closed else []))
    path = tmp_path / (day_name(DAY) if is_closed else journal_name(DAY))
    original = path.read_bytes()
    rng = random.Random(7)
    for _ in range(60):
        place = rng.randrange(len(original))
        path.write_bytes(original[:place] + bytes([original[place] ^ 0x5A]) + original[place + 1 :])
        found = read(disk, "a", START, START + DAY_SECONDS)
        assert all((at - START) // STEP == value for at, value in found)
        others = read(disk, "b", START, START + DAY_SECONDS)
        assert all(value == -((at - START) // STEP) for at, value in others)
        assert found or others  # a block holds a series of a day; a frame of the journal a row
        if not is_closed:
            assert len(found) >= 287 - 8, "names are repeated, so that a damaged frame of them costs little"
    path.write_bytes(original[: len(original) // 2])
    assert all((at - START) // STEP == value for at, value in read(disk))


def test_damaged_names_are_not_taken_for_those_of_an_earlier_run(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    write(disk, [(START, {"a": 1, "b": 1})])
    length = (tmp_path / journal_name(DAY)).stat().st_size
    write(disk, [(START + STEP, {"b": 2, "a": 2})])
    data = bytearray((tmp_path / journal_name(DAY)).read_bytes())
    data[length + 25] ^= 0x5A  # in the names of the second run
    (tmp_path / journal_name(DAY)).write_bytes(data)
    assert (read(disk, "a"), read(disk, "b")) == ([(START, 1)], [(START, 1)])


def test_days_are_counted_so_that_a_wrong_clock_deletes_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    writer = HistoryWriter(disk, STEP, days=3)
    for day in (0, 1, 4000, 2):
        writer.append(START + day * DAY_SECONDS, {"a": day})
    assert [value for _, value in read(disk)] == [1, 2, 4000]


def test_facts_and_events_live_as_long_as_their_day(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    writer = write(disk, rows(1))
    assert writer.add_facts(START, {"GPU-1": {"serial": "165"}})
    assert writer.add_event(START + 5, "evicted", {"workload": "a/b", "lost": 7})
    for closing in (0, 1):
        writer.append(START + closing * DAY_SECONDS + STEP, {"a": 1})
        reader = HistoryReader(disk, STEP)
        assert reader.facts(START, START + 9) == {"GPU-1": {"serial": "165"}}
        (event,) = reader.events(START, START + 9)
        assert (event.at, event.kind, event.fields) == (START + 5, "evicted", {"workload": "a/b", "lost": 7})
        assert reader.events(START + 6, START + 9) == []


KILLED = """
import sys, itertools
from windlass.storage.disk import Disk
from windlass.telemetry.history.writer import HistoryWriter
from pathlib import Path
writer, start = HistoryWriter(Disk(Path(sys.argv[1])), 300), int(sys.argv[2])
for number in itertools.count(start):
    writer.append(20_000 * 86_400 + number * 300, {"a": number, "b": -number})
    print(number, flush=True)
"""


def test_kill_9_loses_no_row_that_was_written(tmp_path: Path) -> None:
    """The rows fly by, several days a second, so that kills fall into closing days, too."""
    last, rng = -1, random.Random(3)
    for _ in range(4):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "h"), str(last + 1)]
        (tmp_path / "h").mkdir(exist_ok=True)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(rng.randint(50, 900)):
            last = int(process.stdout.readline())
        process.kill()
        process.wait()
        last = max([last, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
        found = [value for _, value in read(Disk(tmp_path / "h"))]
        assert found[: last + 1] == list(range(last + 1))[-len(found) :] or found == list(range(len(found)))
        assert len(found) in (last + 1, last + 2)
        last = len(found) - 1
