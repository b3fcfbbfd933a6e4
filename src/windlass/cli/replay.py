"""`windlass simulate DIR` with a scheduler's record in DIR: replays it and compares every decision.

Called by `cli.simulate` if its arguments are such folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windlass.cli.errors import EXIT_DONE, EXIT_FINDINGS
from windlass.cli.output import print_note
from windlass.model.errors import InputError

RECORD = "record.jsonl"


def wants_replay(arguments: Sequence[str]) -> bool:
    """Whether the arguments are folders of records; records and traces in one command are refused."""
    found = [(Path(argument) / RECORD).is_file() for argument in arguments]
    if any(found) and not all(found):
        other = arguments[found.index(False)]
        raise InputError(f"{other} is not a record", remedy="give traces and records to separate commands")
    return any(found)


def run_replay(arguments: Sequence[str]) -> int:
    """0 if every decision is reproduced, 1 if one differs."""
    from windlass.scheduler.decision_record import replay

    code = EXIT_DONE
    for argument in arguments:
        outcome = replay(Path(argument))
        if outcome.difference:
            print_note(outcome.difference)
            code = EXIT_FINDINGS
        else:
            print_note(f"{argument}: {outcome.decisions} decisions, all reproduced")
    return code
