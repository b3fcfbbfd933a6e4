"""How a simulated container behaves: how long it runs, how it ends, what it prints.

In this order: the pod's annotations `sandbox.windlass.dev/duration` and `…/exit-code`; its own command, where
`runtime.shell` understands it; else a pod that should end (restart policy Never or OnFailure) ends well after a
minute, and any other runs until it is deleted. The scheduler reads none of this.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.embedded.controllers.objects import annotations_of
from windlass.embedded.runtime.environment import expand
from windlass.embedded.runtime.simulated_shell import ShellEnvironment, run_command
from windlass.model.errors import InputError
from windlass.model.times import parse_duration
from windlass.model.unstructured import Unstructured

DURATION_ANNOTATION = "sandbox.windlass.dev/duration"
EXIT_CODE_ANNOTATION = "sandbox.windlass.dev/exit-code"
UTILIZATION_ANNOTATION = "sandbox.windlass.dev/gpu-utilization"
DEFAULT_SECONDS = 60.0
DEFAULT_UTILIZATION = 90
PROGRESS_SECONDS = 5.0
_FOREVER = ("forever", "infinity", "infinite")


@dataclass(frozen=True, slots=True)
class Behaviour:
    run_seconds: float | None
    """None: until it is stopped."""
    exit_code: int
    output: tuple[tuple[float, str], ...] = ()
    """Text, each piece with the second at which it appears."""
    prints_progress: bool = False
    """Whether it goes on to print a line every few seconds."""


def behaviour_of(
    pod: Unstructured, container: Unstructured, environment: ShellEnvironment, is_init: bool
) -> Behaviour:
    annotations = annotations_of(pod)
    words = [expand(str(word), dict(environment.environment)) for word in _command(container)]
    done = run_command(words, environment)
    known = done.understood and bool(words)
    length: float | None
    if known:
        length, code = done.seconds, done.exit_code
    elif is_init:
        length, code = 0.0, 0
    else:
        ends = pod["spec"].get("restartPolicy") in ("Never", "OnFailure")
        length, code = (DEFAULT_SECONDS if ends else None), 0
    if not is_init:
        if DURATION_ANNOTATION in annotations:
            length = _length(annotations[DURATION_ANNOTATION], length)
        if EXIT_CODE_ANNOTATION in annotations:
            code = _number(annotations[EXIT_CODE_ANNOTATION], code)
    output = list(done.output)
    if known and done.errors:
        output.append((0.0, done.errors))
    return Behaviour(length, code, tuple(output), prints_progress=not known)


def utilization_of(pod: Unstructured) -> int:
    """Percent, of a running pod's GPUs."""
    return max(0, min(100, _number(annotations_of(pod).get(UTILIZATION_ANNOTATION, ""), DEFAULT_UTILIZATION)))


def _command(container: Unstructured) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _length(text: str, otherwise: float | None) -> float | None:
    if text in _FOREVER:
        return None
    try:
        return float(parse_duration(text))
    except InputError:
        return otherwise


def _number(text: str, otherwise: int) -> int:
    text = text.strip().removesuffix("%")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else otherwise
