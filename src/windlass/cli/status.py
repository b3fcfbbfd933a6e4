"""`windlass status`: the ledger on one screen: what every GPU does, what waits and for what, what needs a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.observation_source import observation_options, observe, take_source
from windlass.cli.output import counted, output_option, plain_table, print_document, print_table, windlass_document
from windlass.model.times import format_duration, format_timestamp

if TYPE_CHECKING:
    from windlass.telemetry.bottleneck import BottleneckLine
    from windlass.telemetry.observation import Observation

EXAMPLES = """\b
Examples:
  windlass status --prometheus http://prometheus:9090
  windlass status --from dump.yaml -o json
"""
BAR_WIDTH = 30
MOST_LINES = 5
"""Of a list, so that everything is on one screen."""
MODEL_HEADINGS = ("MODEL", "GPUS", "HELD", "BUSY", "IDLE", "FREE", "STRANDED", "UNUSABLE")
WORDS = {"held_idle": "held, idle", "in_change": "in change", "unmeasured": "held, unmeasured"}


@click.command("status", epilog=EXAMPLES)
@observation_options
@output_option("table", "json")
def status(output: str, **given: Any) -> None:
    """What every GPU does now. The states add up to all GPUs.

    Stranded: free, and nothing that waits could use it. In change: on a cordoned node. The causes of waiting are those
    of `windlass plan schedule` and `windlass why`.
    """
    observation, _ = observe(take_source(given))
    if output == "json":
        print_document(status_document(observation), output)
        return
    for part in status_lines(observation):
        if isinstance(part, str):
            click.echo(part)
        else:
            print_table(part)


def status_lines(observation: Observation) -> list[Any]:
    """Lines of text and tables, from top to bottom."""
    from windlass.telemetry.bottleneck import find_bottleneck, format_gpus

    ledger = observation.ledger
    nodes = len({share.node for share in ledger.shares})
    lines: list[Any] = [
        f"{format_gpus(ledger.total_milli)} GPUs on {counted(nodes, 'node')} at {format_timestamp(ledger.at)}",
        plain_table(("STATE", "GPUS", "", "WHY"), _state_rows(observation)),
        _utilisation_line(observation),
        plain_table(
            ("MODEL", "GPUS", "HELD", "BUSY", "IDLE", "FREE", "STRANDED", "UNUSABLE"), _model_rows(observation)
        ),
    ]
    waiting = find_bottleneck(ledger)
    if observation.frozen:
        lines.append(f"Windlass is {observation.frozen}. It starts nothing until `windlass freeze --off`.")
    if not waiting:
        lines.append("Nothing else waits for GPUs." if observation.frozen else "Nothing waits for GPUs.")
    for line in waiting[:MOST_LINES]:
        lines.append(f"{line.sentence}{_wait_words(line, ledger.at)}")
    if len(waiting) > MOST_LINES:
        rest = sum(line.milli for line in waiting[MOST_LINES:])
        lines.append(f"{format_gpus(rest)} more wait for {len(waiting) - MOST_LINES} other causes")
    return lines


def status_document(observation: Observation) -> dict[str, Any]:
    from windlass.telemetry.bottleneck import find_bottleneck
    from windlass.telemetry.ledger import ALLOCATED_STATES, STATES

    ledger = observation.ledger
    by_state = ledger.by_state()
    return windlass_document(
        "Status",
        now=format_timestamp(ledger.at),
        gpus=ledger.total_milli / 1000,
        allocatedGpus=sum(by_state[state] for state in ALLOCATED_STATES) / 1000,
        states={state: by_state[state] / 1000 for state in STATES},
        why={
            state: {code: milli / 1000 for code, milli in ledger.why(state).items() if code}
            for state in ("stranded", "unhealthy", "in_change")
        },
        spinningUnknownGpus=ledger.spinning_unknown_milli / 1000,
        sums={
            by: {name: {s: m / 1000 for s, m in states.items() if m} for name, states in ledger.sums(by).items()}
            for by in ("model", "team", "queue", "user")
        },
        waiting=[
            {
                "sentence": line.sentence,
                "cause": line.cause,
                "models": list(line.models),
                "gpus": line.milli / 1000,
                "workloads": line.workloads,
                "oldest": format_timestamp(line.oldest) if line.oldest else None,
            }
            for line in find_bottleneck(ledger)
        ],
        frozen=observation.frozen,
        lostGpuSeconds=ledger.demand.lost_gpu_seconds,
    )


def _state_rows(observation: Observation) -> list[tuple[str, str, str, str]]:
    from windlass.telemetry.bottleneck import format_gpus

    ledger = observation.ledger
    rows = []
    for state, milli in ledger.by_state().items():
        if not milli:
            continue
        why = ", ".join(f"{code} {format_gpus(amount)}" for code, amount in ledger.why(state).items() if code)
        bar = "█" * max(1, round(BAR_WIDTH * milli / ledger.total_milli))
        rows.append((WORDS.get(state, state), format_gpus(milli), bar, why))
    return rows


def _utilisation_line(observation: Observation) -> str:
    found = observation.ledger.by_state()
    busy, idle, unknown = found["computing"] + found["spinning"], found["held_idle"], found["unmeasured"]
    held = busy + idle + unknown
    if not held:
        return "No GPU is held."
    allocated = f"{held / observation.ledger.total_milli:.0%} of all GPUs are held"
    if not busy + idle:
        return f"{allocated}; what they do is not measured"
    part = "" if not unknown else f" (of the {(busy + idle) / held:.0%} of them that are measured)"
    told = f"{allocated}, and {busy / (busy + idle):.0%} of those compute or spin{part}"
    blind = observation.ledger.spinning_unknown_milli
    return told + (f"; {blind / 1000:g} of them can't tell spinning from computing" if blind else "")


def _model_rows(observation: Observation) -> list[tuple[str, ...]]:
    from windlass.telemetry.bottleneck import format_gpus
    from windlass.telemetry.ledger import ALLOCATED_STATES

    rows = []
    for model, states in sorted(observation.ledger.sums("model").items(), key=lambda item: -sum(item[1].values())):
        amounts = (
            sum(states.values()),
            sum(states[state] for state in ALLOCATED_STATES),
            states["computing"] + states["spinning"],
            states["held_idle"],
            states["free"] + states["reserved"],
            states["stranded"],
            states["unhealthy"] + states["in_change"],
        )
        rows.append((model, *map(format_gpus, amounts)))
    return rows


def _wait_words(line: BottleneckLine, now: int) -> str:
    what = "1 workload" if line.workloads == 1 else f"{line.workloads} workloads"
    minutes = max(0, now - line.oldest) // 60 * 60
    since = f", the oldest for {format_duration(minutes)}" if line.oldest and minutes else ""
    return f" ({what}{since}; {line.cause})"
