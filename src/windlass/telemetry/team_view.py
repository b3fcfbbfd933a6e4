"""The page's Team view: who held how many GPU-hours, what was busy, idle and lost, out of the recorded ledger.

The numbers are those of `windlass usage --by team --history`, by the same functions. A viewer who may not see all
namespaces gets the jobs of its own; the rest is one row.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.telemetry.time_view import EVERYBODY, Audience
from windlass.telemetry.usage import Usage, UsageKey, UsageRow, total_row, usage_rows
from windlass.telemetry.usage_history import open_ledger_history, read_usage

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


def make_team_view(folder: Path, start: int, end: int, audience: Audience = EVERYBODY) -> TeamView:
    usage = read_usage(open_ledger_history(folder), start, end)
    shown = _visible(usage, audience)
    own = [row for row in usage_rows(shown, "job", {}) if audience.may_see_job(row.name)]
    jobs = sorted(own, key=lambda row: (-(row.idle_hours + row.spinning_hours), -row.allocated_hours, row.name))
    return TeamView(
        start,
        end,
        usage.covered_seconds,
        usage_rows(shown, "team", {}),
        jobs[:MAX_JOBS],
        total_row(usage, {}),
        usage.notes,
    )


def _visible(usage: Usage, audience: Audience) -> Usage:
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
