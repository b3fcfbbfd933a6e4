"""`windlass plan`: what would be decided, or would have to change. Nothing is executed."""

from __future__ import annotations

import click

from windlass.cli.lazy_group import LazyCommand, LazyGroup

COMMANDS = {
    "schedule": LazyCommand(
        "windlass.cli.plan_schedule:schedule",
        "What would be decided now on a dump, with manifests added.",
        "Questions",
    ),
    "mig": LazyCommand(
        "windlass.cli.plan_mig:mig",
        "What a MIG layout would change on this node's GPUs.",
        "Questions",
    ),
    "defrag": LazyCommand(
        "windlass.cli.plan_defrag:defrag",
        "Which running pods to move so that something that waits can start.",
        "Questions",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def plan() -> None:
    """What would be decided, or would have to change, and the result; nothing is executed."""
