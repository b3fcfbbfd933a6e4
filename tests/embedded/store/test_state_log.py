"""What was acknowledged survives every crash; whatever is damaged is noticed; a repair says what it loses."""

from __future__ import annotations

import contextlib
import random
import struct
import zlib
from collections.abc import Iterator

import pytest
from tests.embedded.store.lossy_disk import FATES, Crash, LossyDisk

from windlass.embedded.store.last_commit import LAST_FILE
from windlass.embedded.store.records import ObjectRecord
from windlass.embedded.store.state_log import StateDamaged, log_name, open_log
from windlass.embedded.store.state_repair import plan_repair, repair_state
from windlass.embedded.store.store import FIRST_VERSION

Objects = dict[str, bytes]
CHECKPOINT_BYTES = 150
"""So that a few writes begin new logs."""


def batches(count: int, seed: int = 1) -> Iterator[list[ObjectRecord]]:
    """Writes of one to three objects, some of them deletions."""
    chance, version = random.Random(seed), FIRST_VERSION
    for _ in range(count):
        batch = []
        for name in chance.sample("abcdef", chance.randint(1, 3)):
            version += 1
            raw = b"" if chance.random() < 0.25 else b'{"v":%d}' % version
            batch.append(ObjectRecord("configmaps", "x", name, version, raw))
        yield batch


class Model:
    """The states that a reader may find: the acknowledged one, or the one that was being written."""

    def __init__(self) -> None:
        self.states: list[tuple[int, Objects]] = [(FIRST_VERSION, {})]
        self.acknowledged = 0
        self.history: dict[str, set[bytes]] = {}

    def begin(self, batch: list[ObjectRecord]) -> None:
        objects = dict(self.states[-1][1])
        for record in batch:
            objects[record.name] = record.raw
            self.history.setdefault(record.name, set()).add(record.raw)
        self.states.append((batch[-1].version, {name: raw for name, raw in objects.items() if raw}))

    def acknowledge(self) -> None:
        self.acknowledged = len(self.states) - 1

    def allowed(self) -> list[tuple[int, Objects]]:
        return self.states[self.acknowledged :]


def play(disk: LossyDisk, model: Model, count: int) -> None:
    log = open_log(disk, CHECKPOINT_BYTES)
    for batch in batches(count):
        model.begin(batch)
        log.append(batch, batch[-1].version)
        model.acknowledge()


def state_of(disk: LossyDisk) -> tuple[int, Objects]:
    log = open_log(disk, CHECKPOINT_BYTES)
    return log.version, {key[2]: record.raw for key, record in log.objects.items()}


def crash_points(count: int) -> int:
    disk = LossyDisk()
    play(disk, Model(), count)
    assert {"write", "sync", "truncate", "remove"} <= {operation.split()[0] for operation in disk.operations}
    return disk.points


@pytest.mark.parametrize("fate", FATES)
def test_what_was_acknowledged_survives_a_crash_at_every_operation(fate: str) -> None:
    for point in range(1, crash_points(8) + 1):
        disk, model = LossyDisk(crash_at=point), Model()
        with pytest.raises(Crash):
            play(disk, model, 8)
        left = disk.after_crash(fate)
        found = state_of(LossyDisk(left))
        assert found in model.allowed(), f"crash at {point}"
        reopening = LossyDisk(left)
        state_of(reopening)
        for second in range(1, reopening.points + 1):  # and while it is opened again
            again = LossyDisk(left, crash_at=second)
            with pytest.raises(Crash):
                state_of(again)
            assert state_of(LossyDisk(again.after_crash(fate))) in model.allowed()


def test_writing_goes_on_after_a_crash() -> None:
    for point in range(1, crash_points(5) + 1):
        disk = LossyDisk(crash_at=point)
        with pytest.raises(Crash):
            play(disk, Model(), 5)
        disk = LossyDisk(disk.after_crash("writes are torn"))
        log = open_log(disk, CHECKPOINT_BYTES)
        record = ObjectRecord("configmaps", "x", "later", log.version + 1, b"{}")
        log.append([record], record.version)
        version, objects = state_of(LossyDisk(disk.after_crash("all unsynced is lost")))
        assert version == record.version
        assert objects["later"] == b"{}"


def test_a_write_that_was_cut_off_is_removed_with_a_message(caplog: pytest.LogCaptureFixture) -> None:
    disk, model = LossyDisk(), Model()
    play(disk, model, 3)
    files = disk.after_crash("nothing is lost")
    name = next(name for name in files if name.endswith(".log"))
    found = state_of(LossyDisk({**files, name: files[name] + b"\xabWL\n half a record"}))
    assert found == model.allowed()[0]
    assert "removed the last 18 bytes, a write that was cut off before its client had an answer" in caplog.text


def small_state() -> tuple[dict[str, bytes], Model]:
    disk, model = LossyDisk(), Model()
    play(disk, model, 6)
    return disk.after_crash("nothing is lost"), model


def damages(files: dict[str, bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Every bit flipped, every file cut at every byte, every file empty, gone or full of zeros from a byte on."""
    for name, data in files.items():
        for position in range(len(data)):
            if any(data[max(0, position - 64) : position + 64]):  # not the middle of a slot's empty rest
                for bit in range(8):
                    changed = bytearray(data)
                    changed[position] ^= 1 << bit
                    yield f"{name}: bit {bit} of byte {position}", {**files, name: bytes(changed)}
                yield f"{name}: cut at {position}", {**files, name: data[:position]}
                yield f"{name}: zeros from {position}", {**files, name: data[:position].ljust(len(data), b"\0")}
        yield f"{name}: gone", {other: content for other, content in files.items() if other != name}


def test_no_damage_loses_an_acknowledged_write_in_silence() -> None:
    files, model = small_state()
    expected = model.allowed()[0]
    refused = 0
    for what, damaged in damages(files):
        try:
            found = state_of(LossyDisk(damaged))
        except StateDamaged:
            refused += 1
        else:
            assert found == expected, what
    log = next(data for name, data in files.items() if name.endswith(".log"))
    assert refused > 9 * len(log)  # every bit of the log, and every cut


def test_a_repair_says_what_is_lost_and_never_goes_back_to_an_older_version() -> None:
    files, model = small_state()
    version = model.allowed()[0][0]
    for number, (what, damaged) in enumerate(damages(files)):
        if number % 7:  # some of each
            continue
        disk = LossyDisk(damaged)
        try:
            state_of(LossyDisk(damaged))
        except StateDamaged:
            plan = plan_repair(disk)
            assert plan.losses, what
            repair_state(disk, plan)
            new_version, objects = state_of(LossyDisk(disk.after_crash("all unsynced is lost")))
            assert new_version > version, what
            assert all(raw in model.history[name] for name, raw in objects.items())
        else:
            assert plan_repair(disk).losses == []


def test_a_crash_during_a_repair_leaves_the_damaged_or_the_repaired_state() -> None:
    files, _ = small_state()
    name = next(name for name in files if name.endswith(".log"))
    damaged = {**files, name: files[name][:100] + b"?" + files[name][101:]}
    whole = LossyDisk(damaged)
    repair_state(whole, plan_repair(whole))
    repaired = state_of(whole)
    for fate in FATES:
        for point in range(1, whole.points + 1):
            disk = LossyDisk(damaged, crash_at=point)
            with contextlib.suppress(Crash):
                repair_state(disk, plan_repair(disk))
            left = LossyDisk(disk.after_crash(fate))
            try:
                assert state_of(left) == repaired
            except StateDamaged:
                assert plan_repair(left).losses


def test_a_repair_names_the_object_of_a_damaged_record() -> None:
    disk = LossyDisk()
    log = open_log(disk)
    for version, name in ((1001, "a"), (1002, "b"), (1003, "c")):
        log.append([ObjectRecord("configmaps", "x", name, version, b'{"some":"text"}')], version)
    data = disk.read(log_name(1))
    position = data.index(b"text", data.index(b"text") + 1)
    damaged = LossyDisk(
        {**disk.after_crash("nothing is lost"), log_name(1): data[:position] + b"T" + data[position + 1 :]}
    )
    losses = plan_repair(damaged).losses
    assert losses[0].startswith(
        "state-000001.log: 1 of 4 records are lost, at resource versions between 1001 and 1003: objects written"
    )
    assert losses[1:] == ["  configmaps x/b, as of resource version 1002"]


def test_a_folder_of_a_later_release_is_refused() -> None:
    disk = LossyDisk()
    open_log(disk)
    files = disk.after_crash("nothing is lost")
    body = bytearray(files[LAST_FILE][:4096])
    body[8:12] = struct.pack("<I", 3)
    body[52:56] = struct.pack("<I", zlib.crc32(bytes(body[:52])))
    with pytest.raises(Exception, match="has format 3, and this Windlass reads 2"):
        open_log(LossyDisk({**files, LAST_FILE: bytes(body) * 2}))
