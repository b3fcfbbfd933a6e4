"""`windlass up --state DIR --repair`: what of a damaged state can be read, what would be lost, and going on without it.

`plan_repair` only reads. `repair_state` keeps the damaged files beside the new ones, and moves the store's version
beyond every version that was ever acknowledged, so that no client takes an old object for a newer one.
"""

from __future__ import annotations

import msgspec

from windlass.embedded.store.last_commit import LAST_FILE, LastCommit, read_last
from windlass.embedded.store.records import FoundRecord, ObjectRecord, damaged_record_at, record_at
from windlass.embedded.store.sqlite_state import SQLITE_FILE, read_sqlite_state
from windlass.embedded.store.state_log import Objects, log_generation, log_name, replace_log, replay
from windlass.embedded.store.store import FIRST_VERSION
from windlass.storage.disk import Disk
from windlass.storage.frames import MAGIC

VERSION_GAP = 1_000_000
"""Added to the last version that is known, since later ones may have been lost."""
SHOWN_OBJECTS = 20
_CONSEQUENCE = "objects written there return to an earlier state or are missing, and objects deleted there exist again"


class RepairPlan(msgspec.Struct):
    losses: list[str] = []
    """What is lost, line by line; empty if nothing is damaged."""
    kept: list[ObjectRecord] = []
    version: int = FIRST_VERSION
    generation: int = 1
    files: list[str] = []
    """The damaged ones."""


class _Salvage(msgspec.Struct):
    found: list[FoundRecord] = []
    named: list[str] = []
    """Damaged records that still say what they were about."""


def plan_repair(disk: Disk) -> RepairPlan:
    names, last = disk.names(), read_last(disk)
    logs = [name for name in names if log_generation(name)]
    if last is None and SQLITE_FILE in names:
        return _plan_sqlite(disk, logs)
    if (last is None and not logs) or (last is not None and not last.generation):
        return RepairPlan()
    name = log_name(last.generation) if last is not None else logs[-1]
    salvage = _salvage(disk.read(name)) if name in names else _Salvage()
    kept, version = _newest(salvage.found)
    plan = RepairPlan(_losses(name, salvage, last), kept, generation=_next_generation(logs, last))
    plan.version = max(version, last.version if last is not None else 0) + VERSION_GAP
    plan.files = [file for file in (*logs, LAST_FILE) if file in names]
    return plan


def repair_state(disk: Disk, plan: RepairPlan) -> list[str]:
    """Replaces the damaged state by what can be read. Returns where the damaged files are kept."""
    number = 1 + sum(name.startswith("damaged-") for name in disk.names())
    copies = [f"damaged-{number}-{name}" for name in plan.files]
    for name, copy in zip(plan.files, copies, strict=True):
        disk.truncate(copy, 0)
        disk.write(copy, 0, disk.read(name))
        disk.sync(copy)
    disk.sync_folder()
    replace_log(disk, plan.generation, plan.version, plan.kept)
    for name in plan.files:
        if name != LAST_FILE:
            disk.remove(name)
    return [str(disk.folder / copy) for copy in copies]


def _salvage(data: bytes) -> _Salvage:
    result, offset, number = _Salvage([], []), 0, -1
    while offset < len(data):
        found = record_at(data, offset)
        if found is not None and found.number > number:
            result.found.append(found)
            offset, number = found.end, found.number
            continue
        damaged = damaged_record_at(data, offset)
        if isinstance(damaged, ObjectRecord):
            result.named.append(_describe(damaged))
        following = data.find(MAGIC, offset + 1)
        offset = following if following > 0 else len(data)
    return result


def _newest(found: list[FoundRecord]) -> tuple[list[ObjectRecord], int]:
    objects: Objects = {}
    records = [item.record for item in found if isinstance(item.record, ObjectRecord)]
    replay(objects, records)
    version = max((item.record.version for item in found), default=FIRST_VERSION)
    return list(objects.values()), version


def _losses(name: str, salvage: _Salvage, last: LastCommit | None) -> list[str]:
    found = salvage.found
    numbers = {item.number for item in found}
    expected = last.records if last is not None else max(numbers, default=-1) + 1
    missing = [number for number in range(expected) if number not in numbers]
    lines = []
    if last is None:
        lines.append(f"{LAST_FILE}: it can't be read, so it is not known whether the end of {name} is missing")
    if missing:
        where = _version_range(found, missing[0], missing[-1], last)
        lines.append(f"{name}: {len(missing)} of {expected} records are lost, {where}: {_CONSEQUENCE}")
        lines += [f"  {line}" for line in salvage.named[:SHOWN_OBJECTS]]
        if len(salvage.named) > SHOWN_OBJECTS:
            lines.append(f"  and {len(salvage.named) - SHOWN_OBJECTS} more")
    return lines


def _version_range(found: list[FoundRecord], first: int, final: int, last: LastCommit | None) -> str:
    before = max((item.record.version for item in found if item.number < first), default=FIRST_VERSION)
    after = min((item.record.version for item in found if item.number > final), default=0)
    if after:
        return f"at resource versions between {before} and {after}"
    return f"after resource version {before}" + (f", up to {last.version}" if last is not None else "")


def _plan_sqlite(disk: Disk, logs: list[str]) -> RepairPlan:
    state = read_sqlite_state(disk.folder)
    if not state.problem:
        return RepairPlan()
    line = f"{SQLITE_FILE}: {state.problem}; {len(state.records)} objects can be read, all others are lost"
    return RepairPlan([line], state.records, state.version + VERSION_GAP, _next_generation(logs, None), [SQLITE_FILE])


def _next_generation(logs: list[str], last: LastCommit | None) -> int:
    return 1 + max((*(log_generation(name) for name in logs), last.generation if last is not None else 0))


def _describe(record: ObjectRecord) -> str:
    name = f"{record.namespace}/{record.name}" if record.namespace else record.name
    return f"{record.resource} {name}, as of resource version {record.version}"
