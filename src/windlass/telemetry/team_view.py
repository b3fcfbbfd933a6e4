"""The page's Team view: who held how many GPU-hours, what was busy, idle and lost.

The numbers are those of `windlass usage --by team`, by the same functions. A viewer who may not see all
namespaces gets the jobs of its own; the rest is one row.
"""

from __future__ import annotations

import msgspec

from windlass.telemetry.time_view import EVERYBODY, Audience
from windlass.telemetry.usage import Usage, UsageKey, UsageRow, total_row, usage_rows

MAX_JOBS = 50
OTHER_TEAMS = "(other teams)"


class TeamView(msgspec.Struct, frozen=True, rename="camel"):
    start: int
    end: int
    covered_seconds: int
    teams: list[UsageRow]
    jobs: list[UsageRow]
    """Those that wasted most: idle and spinning hours first."""
    total: UsageRow
    notes: list[str]


def make_team_view(usage: Usage, audience: Audience = EVERYBODY) -> TeamView:
    shown = visible_usage(usage, audience)
    own = [row for row in usage_rows(shown, "job", {}) if audience.may_see_job(row.name)]
    jobs = sorted(own, key=lambda row: (-(row.idle_hours + row.spinning_hours), -row.allocated_hours, row.name))
    return TeamView(
        usage.start,
        usage.end,
        usage.covered_seconds,
        usage_rows(shown, "team", {}),
        jobs[:MAX_JOBS],
        total_row(usage, {}),
        usage.notes,
    )


def visible_usage(usage: Usage, audience: Audience) -> Usage:
    """The same sums; what others hold is under one name."""
    if audience.namespaces is None:
        return usage
    found = Usage(usage.start, usage.end, usage.covered_seconds)
    for key, states in usage.sums.items():
        for state, amount in states.items():
            found.add(_shown(key, audience), state, amount)
    for key, seconds in usage.lost_gpu_seconds.items():
        found.add_lost(_shown(key, audience), seconds)
    return found


def _shown(key: UsageKey, audience: Audience) -> UsageKey:
    if not key.job or audience.may_see_job(key.job):
        return key
    return UsageKey(team=OTHER_TEAMS, model=key.model)
