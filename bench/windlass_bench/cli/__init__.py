"""`windlass bench`: the project's benchmarks, each measured against a peer in the same run and printed as a ratio.

Each benchmark is a command of its own, imported when it is called.
"""

from __future__ import annotations

import click

from windlass.cli.lazy_group import LazyCommand, LazyGroup

BENCHMARKS = {
    "claims": LazyCommand(
        "windlass_bench.cli.claims:claims",
        "What guides claim about sharing, oversubscription, classes, spreading and locality.",
        "Benchmarks",
    ),
    "embedded": LazyCommand(
        "windlass_bench.cli.embedded:embedded",
        "The embedded API server beside a real one: creates, binds, watches, memory.",
        "Benchmarks",
    ),
    "engine": LazyCommand(
        "windlass_bench.cli.engine:engine",
        "The engine's speed: pods, gangs, queues and preemption on 5,000 nodes.",
        "Benchmarks",
    ),
    "live": LazyCommand(
        "windlass_bench.cli.live:live",
        "Windlass and kube-scheduler on the same pods and the same API server.",
        "Benchmarks",
    ),
    "node": LazyCommand(
        "windlass_bench.cli.node:node",
        "The node agent: memory, scrapes, allocations, and how soon a fault is told.",
        "Benchmarks",
    ),
    "simulate": LazyCommand(
        "windlass_bench.cli.simulate:simulate",
        "The simulator and its policies against published results: right, better, fast.",
        "Benchmarks",
    ),
    "why": LazyCommand(
        "windlass_bench.cli.why:why",
        "Answers of `why` on a large dump, and `check` of many manifests.",
        "Benchmarks",
    ),
}


@click.group(cls=LazyGroup, table=BENCHMARKS)
def bench() -> None:
    """Run the project's benchmarks."""
