"""`windlass node`: the agent of a GPU node, and its tools.

Each command is imported when it is called; none of them needs numpy.
"""

from __future__ import annotations

import click

from windlass.cli.lazy_group import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand(
        "windlass.cli.node_run:run",
        "Run the agent: device plugin, labels, MIG manager, exporter, health.",
        "The agent",
    ),
    "validate": LazyCommand(
        "windlass.cli.node_validate:validate",
        "Is this node fit for GPU work: every check with its evidence.",
        "Tools",
    ),
    "explain-config": LazyCommand(
        "windlass.cli.node_explain:explain_config",
        "What a device plugin config would advertise here, before it is applied.",
        "Tools",
    ),
    "advise": LazyCommand(
        "windlass.cli.node_advise:advise",
        "Whole GPU, MIG, MPS or time-slicing for a workload, and why.",
        "Tools",
    ),
    "labels": LazyCommand(
        "windlass.cli.node_labels:labels",
        "The labels that this node would get.",
        "Tools",
    ),
    "fault": LazyCommand(
        "windlass.cli.node_fault:fault",
        "Break or heal a GPU of a simulated node.",
        "Simulation",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def node() -> None:
    """The agent of a GPU node, and its tools."""
