"""What the operator has out of service on a node, as the Node says it; the scheduler and `why` use the same words.

`operator.decide.bring_up` writes the annotations, `placement.unhealthy_gpus` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.names.windlass import HELD_DEVICES_ANNOTATION, REPAIR_UNTIL_ANNOTATION
from windlass.model.times import format_timestamp, parse_timestamp

WHOLE_NODE = -1
"""The GPU's index in a GPURepair of all of them."""
ENDS_BY_ITSELF = ("Suspected", "Contained", "Draining", "Resetting", "Rebooting", "Validating")
"""Phases of a GPURepair that no person has to end."""
NEEDS_PERSON = "person"
"""Instead of a time: the repair doesn't go on by itself."""


def held_devices(annotations: Mapping[str, str]) -> frozenset[int]:
    """The indices of GPUs that the operator has taken out of service."""
    parts = annotations.get(HELD_DEVICES_ANNOTATION, "").split(",")
    return frozenset(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 5)


def repair_words(node: str, held: int, whole: int, until: int | str) -> str:
    """`2 of 8 GPUs on gpu-7 are in repair until about 14:20 UTC`. `until`: seconds, `person`, or 0 for not known."""
    of = f" of {whole}" if whole >= held else ""
    gpus = "GPU" if held == 1 and not of else "GPUs"
    return f"{held}{of} {gpus} on {node} {'is' if held == 1 else 'are'} in repair{end_words(until)}"


def end_words(until: int | str) -> str:
    if until == NEEDS_PERSON:
        return ", and needs a person"
    return f" until about {clock(int(until))}" if until else ""


def clock(moment: int) -> str:
    return format_timestamp(moment)[11:16] + " UTC"


def node_repair(name: str, annotations: Mapping[str, str], whole: int) -> str:
    """Of a node whose GPUs are in repair; empty for others."""
    held = held_devices(annotations)
    if not held:
        return ""
    text = annotations.get(REPAIR_UNTIL_ANNOTATION, "")
    return repair_words(name, len(held), whole, NEEDS_PERSON if text == NEEDS_PERSON else parse_timestamp(text))
