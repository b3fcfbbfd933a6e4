"""`windlass up --state DIR --repair`: shows what a damaged state has lost, asks, and goes on with the rest.

`up` calls it before it starts the cluster.
"""

from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.output import counted, print_note
from windlass.model.errors import InputError


def repair(folder: Path, is_confirmed: bool) -> None:
    """Raises an `InputError` if the user declines; nothing has been changed then."""
    from windlass.embedded.store.journal import lock_folder
    from windlass.embedded.store.state_repair import plan_repair, repair_state

    disk = lock_folder(folder)
    try:
        plan = plan_repair(disk)
        if not plan.losses:
            print_note(f"{folder}: nothing to repair")
            return
        print_note(f"{folder}: {counted(len(plan.kept), 'object')} can be read. What is lost:")
        for line in plan.losses:
            print_note(f"  {line}")
        if not (is_confirmed or _is_wanted()):
            raise InputError(
                "not repaired; nothing was changed",
                file=str(folder),
                remedy="answer y, or add --yes",
            )
        for copy in repair_state(disk, plan):
            print_note(f"kept: {copy}")
    finally:
        disk.close()


def _is_wanted() -> bool:
    try:
        return click.confirm("Start the cluster without what is lost?", err=True)
    except click.Abort:  # no terminal
        return False
