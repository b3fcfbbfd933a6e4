"""When nodes may be taken: windows of the day, and freezes. Nodes that are under way, and ways back, don't wait."""

from __future__ import annotations

from windlass.model.times import format_timestamp, parse_timestamp
from windlass.operator.kinds.fleet_change import DAYS, FleetChangeSpec, Window
from windlass.operator.kinds.reasons import Reason

DAY = 24 * 3600
_FIRST_DAY = 3
"""1 January 1970 was a Thursday."""


def why_closed(spec: FleetChangeSpec, now: int) -> tuple[Reason, str, int] | None:
    """Reason, message and the time at which it ends; None if nodes may be taken now."""
    for freeze in spec.freezes:
        if parse_timestamp(freeze.from_) <= now < parse_timestamp(freeze.until):
            words = f": {freeze.reason}" if freeze.reason else ""
            return Reason.Frozen, f"frozen until {freeze.until}{words}", parse_timestamp(freeze.until)
    if not spec.windows or any(_is_open(window, now) for window in spec.windows):
        return None
    opens = min(_next_opening(window, now) for window in spec.windows)
    return Reason.OutsideWindow, f"the next window opens at {format_timestamp(opens)}", opens


def _is_open(window: Window, now: int) -> bool:
    """Whether a window that began today or yesterday is open."""
    day, second = divmod(now + _offset(window), DAY)
    start, end = _seconds(window.start), _seconds(window.end)
    if end > start:
        return _has_day(window, day) and start <= second < end
    return (_has_day(window, day) and second >= start) or (_has_day(window, day - 1) and second < end)


def _next_opening(window: Window, now: int) -> int:
    today = (now + _offset(window)) // DAY
    starts = (
        day * DAY + _seconds(window.start) - _offset(window) for day in range(today, today + 9) if _has_day(window, day)
    )
    return next(at for at in starts if at > now)


def _has_day(window: Window, day: int) -> bool:
    return DAYS[(day + _FIRST_DAY) % 7] in window.days


def _seconds(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 3600 + int(minutes) * 60


def _offset(window: Window) -> int:
    """Seconds that local time is ahead of UTC."""
    sign = -1 if window.utc_offset[0] == "-" else 1
    return sign * _seconds(window.utc_offset[1:])
