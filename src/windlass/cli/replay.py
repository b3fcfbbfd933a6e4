"""`windlass simulate DIR` with a scheduler's record in DIR: plays it, and says whether every decision comes out again.

`cli.simulate` hands over here when it is given such a folder.
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
        odd = arguments[found.index(False)]
        raise InputError(f"{odd} is no record", remedy="give traces and records to separate commands")
    return any(found)


def run_replay(arguments: Sequence[str]) -> int:
    """0 if every decision comes out as it was, 1 if one doesn't."""
    from windlass.scheduler.decision_record import replay

    code = EXIT_DONE
    for argument in arguments:
        outcome = replay(Path(argument))
        if outcome.difference:
            print_note(outcome.difference)
            code = EXIT_FINDINGS
        else:
            print_note(f"{argument}: {outcome.decisions} decisions, all as they were")
    return code
