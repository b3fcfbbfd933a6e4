"""Jobs that hold GPUs and don't use them: for the whole gang, after a start-up grace, with two warnings before the end.

One GPU that waits is normal in a gang, and so is a job that loads for minutes; a service at 0 % keeps its model ready.
Time that was not measured is nobody's idle time. Nothing is stopped here: `stage` says what is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING, UNMEASURED, Activity

Stage = Literal["watch", "warned", "warned again", "over"]


class IdleRules(msgspec.Struct, frozen=True):
    window_seconds: int = 3600
    """So long without work is idle."""
    grace_seconds: int = 1800
    """After the start, until the first work on a GPU."""
    first_warning: float = 0.5
    """Of the window."""
    second_warning: float = 0.85
    measured_share: float = 0.8
    """Of the window that has to be measured, or nothing is said."""


class Idleness(msgspec.Struct, frozen=True):
    kind: str
    """`idle`, `spinning`, or `partly idle`."""
    since: float
    seconds: float
    idle_gpus: int
    gpus: int
    stage: Stage


DEFAULT_RULES = IdleRules()
Moment = tuple[float, Mapping[str, Activity]]
"""Time, and what every GPU of the gang did then."""


def find_idleness(
    moments: Sequence[Moment], started_at: float, *, is_service: bool = False, rules: IdleRules = DEFAULT_RULES
) -> Idleness | None:
    """`moments` in order, up to now. Services are reported at the stage `watch`, whatever they do."""
    if not moments:
        return None
    now, gpus = moments[-1][0], moments[-1][1]
    last_work, has_worked = _last_work(moments, started_at)
    since = last_work if has_worked else started_at + rules.grace_seconds
    seconds = now - since
    recent = [found for at, found in moments if at > since]
    if seconds < rules.first_warning * rules.window_seconds or not _is_measured(recent, rules):
        return _partly_idle(moments, rules) if has_worked else None
    is_spinning = any(SPINNING in found.values() for found in recent)
    stage: Stage = "watch" if is_service else _stage(seconds, rules)
    return Idleness("spinning" if is_spinning else "idle", since, seconds, len(gpus), len(gpus), stage)


def _last_work(moments: Sequence[Moment], started_at: float) -> tuple[float, bool]:
    times = [at for at, found in moments if COMPUTING in found.values()]
    return (times[-1], True) if times else (started_at, False)


def _stage(seconds: float, rules: IdleRules) -> Stage:
    part = seconds / rules.window_seconds
    if part >= 1.0:
        return "over"
    return "warned again" if part >= rules.second_warning else "warned"


def _is_measured(recent: Sequence[Mapping[str, Activity]], rules: IdleRules) -> bool:
    known = [activity != UNMEASURED for found in recent for activity in found.values()]
    return bool(known) and sum(known) >= rules.measured_share * len(known)


def _partly_idle(moments: Sequence[Moment], rules: IdleRules) -> Idleness | None:
    """Some GPUs of a gang that works did nothing for the whole window: it needs fewer."""
    now = moments[-1][0]
    recent = [found for at, found in moments if at > now - rules.window_seconds]
    if moments[0][0] > now - rules.window_seconds or not _is_measured(recent, rules):
        return None
    gpus = moments[-1][1].keys()
    idle = [gpu for gpu in gpus if all(found.get(gpu) == HELD_IDLE for found in recent)]
    if not idle or len(idle) == len(gpus):
        return None
    return Idleness("partly idle", now - rules.window_seconds, rules.window_seconds, len(idle), len(gpus), "watch")
