"""How a simulated container behaves: how long it runs, how it exits, what it prints.

`simulated_containers` asks. In order of precedence: the pod's annotations `sandbox.windlass.dev/duration` and
`…/exit-code`; its own command, if `simulated_shell` understands it; else a pod that should end (restartPolicy Never
or OnFailure) succeeds after a minute, and any other runs until it is deleted. The scheduler reads none of this.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.embedded.controllers.objects import annotations_of
from windlass.embedded.runtime.environment import expand_all
from windlass.embedded.runtime.simulated_shell import ShellEnvironment, run_command
from windlass.model.errors import InputError
from windlass.model.names.windlass import SIMULATED_DURATION_ANNOTATION, SIMULATED_UTILIZATION_ANNOTATION
from windlass.model.times import parse_duration
from windlass.model.unstructured import Unstructured

EXIT_CODE_ANNOTATION = "sandbox.windlass.dev/exit-code"
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
    """Text with the second at which it appears."""
    prints_progress: bool = False
    """Whether it prints a line every few seconds."""


def behaviour_of(pod: Unstructured, container: Unstructured, environment: ShellEnvironment, is_init: bool) -> Behaviour:
    annotations = annotations_of(pod)
    command = expand_all(_command(container), environment.environment)
    result = run_command(command, environment)
    is_understood = result.understood and bool(command)
    seconds: float | None
    if is_understood:
        seconds, code = result.seconds, result.exit_code
    elif is_init:
        seconds, code = 0.0, 0
    else:
        ends = pod["spec"].get("restartPolicy") in ("Never", "OnFailure")
        seconds, code = (DEFAULT_SECONDS if ends else None), 0
    if not is_init:
        if SIMULATED_DURATION_ANNOTATION in annotations:
            seconds = _duration_or(annotations[SIMULATED_DURATION_ANNOTATION], seconds)
        if EXIT_CODE_ANNOTATION in annotations:
            code = _int_or(annotations[EXIT_CODE_ANNOTATION], code)
    output = list(result.output)
    if is_understood and result.errors:
        output.append((0.0, result.errors))
    return Behaviour(seconds, code, tuple(output), prints_progress=not is_understood)


def utilization_of(pod: Unstructured) -> int:
    """Percentage for a running pod's GPUs."""
    return max(
        0,
        min(100, _int_or(annotations_of(pod).get(SIMULATED_UTILIZATION_ANNOTATION, ""), DEFAULT_UTILIZATION)),
    )


def _command(container: Unstructured) -> list[str]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def _duration_or(text: str, default: float | None) -> float | None:
    if text in _FOREVER:
        return None
    try:
        return float(parse_duration(text))
    except InputError:
        return default


def _int_or(text: str, default: int) -> int:
    text = text.strip().removesuffix("%")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else default
