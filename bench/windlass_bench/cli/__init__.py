"""`windlass bench`: the project's benchmarks, each measured against a peer in the same run and printed as a ratio.

Each benchmark is a command of its own, imported when it is called.
"""

from __future__ import annotations

import click

from windlass.cli.lazy_group import LazyGroup, lazy_commands

BENCHMARKS = lazy_commands(
    "windlass_bench.cli.",
    (
        "claims",
        "Benchmarks",
        "What guides claim about sharing, oversubscription, classes, spreading and locality.",
    ),
    ("embedded", "Benchmarks", "The embedded API server beside a real one: creates, binds, watches, memory."),
    ("engine", "Benchmarks", "The engine's speed: pods, gangs, queues and preemption on 5,000 nodes."),
    ("live", "Benchmarks", "Windlass and kube-scheduler on the same pods and the same API server."),
    ("node", "Benchmarks", "The node agent: memory, scrapes, allocations, and how soon a fault is told."),
    (
        "simulate",
        "Benchmarks",
        "The simulator and its policies against published results: right, better, fast.",
    ),
    ("why", "Benchmarks", "Answers of `why` on a large dump, and `check` of many manifests."),
)


@click.group(cls=LazyGroup, table=BENCHMARKS)
def bench() -> None:
    """Run the project's benchmarks."""
