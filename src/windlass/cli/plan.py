"""`windlass plan`: what would be decided, or would have to change. Nothing is executed."""

from __future__ import annotations

import click

from windlass.cli.lazy_group import LazyGroup, lazy_commands

COMMANDS = lazy_commands(
    "windlass.cli.plan_",
    ("schedule", "Questions", "What would be decided now, on the cluster or a dump, with manifests added."),
    ("order", "Questions", "In which order waiting work is considered, and what would move it."),
    ("mig", "Questions", "What a MIG layout would change on this node's GPUs."),
    ("defrag", "Questions", "Which running pods to move so that something that waits can start."),
    ("change", "Questions", "Which nodes a fleet change takes, in which order, and which pods that evicts."),
)


@click.group(cls=LazyGroup, table=COMMANDS)
def plan() -> None:
    """What would be decided, or would have to change, and the result; nothing is executed."""
