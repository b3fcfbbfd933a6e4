"""What clients of the embedded API server see is explained by one order of versions, whenever its process is killed.

A few histories on every run; `make history N=1000` for many. Each fault that is planted here is noticed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from tests.embedded.store.history import OK, Event, History, Listed, Read, Watched, Write, problems
from tests.embedded.store.history_play import judged, play_history

from windlass.embedded.server.watch_stream import WatchStream
from windlass.embedded.store.resource_storage import ResourceStorage
from windlass.embedded.store.state_log import StateLog
from windlass.embedded.store.store import FIRST_VERSION, Store

Patch = contextlib.AbstractContextManager[object]
MOST_SEEDS = 15


@pytest.mark.parametrize("seed", [*range(8), 771010])
def test_a_history_is_explained_by_its_versions(seed: int) -> None:
    _, history, found = judged(seed)
    assert found == []
    assert len(history.writes) > 50
    assert history.restarts
    assert any(watch.until for watch in history.watches)


def answers_come_before_the_disk() -> Patch:
    async def wait_durable(self: Store) -> None: ...

    return mock.patch.object(Store, "wait_durable", wait_durable)


def a_write_of_a_group_is_forgotten() -> Patch:
    append = StateLog.append

    def append_less(self: StateLog, records: Any, version: int) -> None:
        append(self, [*records][1:] if len(records) > 1 else records, version)

    return mock.patch.object(StateLog, "append", append_less)


def a_change_in_seven_is_not_shown() -> Patch:
    on_change = WatchStream._on_change

    def on_most_changes(self: WatchStream, change: Any) -> None:
        if change.version % 7:
            on_change(self, change)

    return mock.patch.object(WatchStream, "_on_change", on_most_changes)


def lists_at_a_version_show_the_newest() -> Patch:
    def list_at(self: ResourceStorage, version: int, namespace: str = "", after: Any = None) -> Any:
        self.changes_since(version)
        return self.list_current(namespace, after)

    return mock.patch.object(ResourceStorage, "list_at", list_at)


def a_watch_goes_on_after_a_restart_as_if_nothing_were_missing() -> Patch:
    def changes_since(self: ResourceStorage, version: int) -> list[Any]:
        return [change for change in self._history if change.version > version]

    return mock.patch.object(ResourceStorage, "changes_since", changes_since)


def versions_begin_anew_after_a_restart() -> Patch:
    return mock.patch.object(StateLog, "version", FIRST_VERSION)


@pytest.mark.parametrize(
    "plant",
    [
        answers_come_before_the_disk,
        a_write_of_a_group_is_forgotten,
        a_change_in_seven_is_not_shown,
        lists_at_a_version_show_the_newest,
        a_watch_goes_on_after_a_restart_as_if_nothing_were_missing,
        versions_begin_anew_after_a_restart,
    ],
)
def test_a_planted_fault_is_noticed(plant: Callable[[], Patch]) -> None:
    with plant():
        assert any(problems(play_history(seed)) for seed in range(100, 100 + MOST_SEEDS))


WRITES = [
    Write("a", 1, 0, 0.0, 1.0, OK, 10),
    Write("a", 2, 10, 2.0, 3.0, OK, 11),
    Write("a", 0, 11, 4.0, 5.0, OK),
    Write("b", 3, 0, 4.0, 5.0, OK, 13),
]
DELETED = Event("DELETED", "a", 12, 0)
EVENTS = [Event("ADDED", "a", 10, 1), Event("MODIFIED", "a", 11, 2), DELETED, Event("ADDED", "b", 13, 3)]


def history(**changes: Any) -> History:
    seen = {"writes": WRITES, "watches": [Watched(9, EVENTS, until=13)], "max_changes": 100}
    return History(**{**seen, **changes})


def test_a_right_history_has_no_problem() -> None:
    lists = [Listed(6.0, 7.0, 13, {"b": (13, 3)}), Listed(6.0, 7.0, 11, {"a": (11, 2)}, is_current=False)]
    assert problems(history(reads=[Read("a", 2.5, 2.6, 10, 1), Read("a", 4.5, 6.0)], lists=lists)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reads": [Read("a", 3.5, 3.6, 10, 1)]}, "is older than"),
        ({"reads": [Read("a", 5.5, 5.6, 11, 2)]}, "had deleted"),
        ({"reads": [Read("b", 1.0, 2.0, 13, 3)]}, "had not begun"),
        ({"lists": [Listed(6.0, 7.0, 12, {}, is_current=True)]}, "is older than version 13"),
        ({"lists": [Listed(6.0, 7.0, 13, {"a": (11, 2), "b": (13, 3)})]}, "shows a as"),
        ({"watches": [Watched(9, EVENTS[:2] + EVENTS[3:]), Watched(9, EVENTS)]}, "misses [12]"),
        ({"watches": [Watched(9, EVENTS[:2] + EVENTS[3:], until=13)]}, "misses Write(key='a', value=0"),
        ({"watches": [Watched(9, [EVENTS[0], EVENTS[0]])]}, "twice or out of order"),
        ({"watches": [Watched(11, is_expired=True)]}, "was too old after 1 changes"),
        ({"restarts": [(6.0, 12)]}, "after a restart the version is 12"),
        ({"writes": [*WRITES, Write("a", 9, 10, 6.0, 7.0, OK, 14)]}, "replaced version 12"),
        ({"writes": [*WRITES, Write("b", 9, 0, 6.0, 7.0, OK, 14)]}, "created what existed"),
        ({"writes": [*WRITES, Write("b", 9, 13, 6.0, 7.0, "refused")]}, "although nothing had changed"),
        ({"writes": [*WRITES, Write("b", 9, 13, 6.0, 7.0, OK, 5)]}, "comes before version 13"),
        ({"writes": [*WRITES, Write("c", 9, 0, 6.0, 7.0, OK, 13)]}, "version 13 is"),
    ],
)
def test_each_wrong_history_is_named(changes: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in problems(history(**changes))), problems(history(**changes))
