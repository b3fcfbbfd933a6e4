"""`windlass node`: the agent of a GPU node, and its tools.

Each command is imported when it is called; none of them needs numpy.
"""

from __future__ import annotations

import click

from windlass.cli.lazy_group import LazyGroup, lazy_commands

COMMANDS = lazy_commands(
    "windlass.cli.node_",
    ("run", "The agent", "Run the agent: device plugin, labels, MIG manager, exporter, health."),
    ("validate", "Tools", "Is this node fit for GPU work: every check with its evidence."),
    (
        "explain-config",
        "Tools",
        "What a device plugin config would advertise here, before it is applied.",
        "windlass.cli.node_explain:explain_config",
    ),
    ("advise", "Tools", "Whole GPU, MIG, MPS or time-slicing for a workload, and why."),
    ("labels", "Tools", "The labels that this node would get."),
    ("history", "Tools", "What the GPUs of this node have done, from the agent's --history."),
    ("trends", "Tools", "GPUs of this node that get worse: memory leaks, heat, growing errors."),
    ("runtime", "Tools", "A runtime handler for containerd, by a drop-in: what would be written, or why nothing."),
    ("suspend", "Suspended work", "Take a pod's work off its GPUs in place; its processes stay."),
    ("resume", "Suspended work", "Put suspended work back on its GPUs.", "windlass.cli.node_suspend:resume"),
    ("fault", "Simulation", "Break or heal a GPU of a simulated node."),
)


@click.group(cls=LazyGroup, table=COMMANDS)
def node() -> None:
    """The agent of a GPU node, and its tools."""
