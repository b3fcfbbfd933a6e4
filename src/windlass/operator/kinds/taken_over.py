"""The annotation `windlass.dev/taken-over` of a node: which labels of NVIDIA's operator ours has changed, as they were.

Written in the same patch as the labels, so that whoever finds a node knows how to give it back: `decide.take_over`, and
`windlass stack release --abandon` without any operator.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.names.nvidia import DEPLOY_LABEL_PREFIX
from windlass.model.names.windlass import TAKEN_OVER_ANNOTATION, TAKEN_OVER_VALUE


class TakenOver(msgspec.Struct, frozen=True):
    stack: str
    at: str
    """When the labels were last written."""
    labels: dict[str, str | None] = {}
    """As they were; None: the label was not there. Empty: everything has been given back, a moment ago."""


def taken_over(annotations: Mapping[str, str]) -> TakenOver | None:
    """None if nothing was, or if it can't be read."""
    try:
        return msgspec.json.decode(annotations.get(TAKEN_OVER_ANNOTATION, ""), type=TakenOver)
    except msgspec.DecodeError:
        return None


def encode_taken_over(record: TakenOver) -> str:
    return msgspec.json.encode(record).decode()


def paused_label(labels: Mapping[str, str]) -> str:
    """A part that NVIDIA's driver or MIG manager has paused, as `label=value`; empty if none is. It restores what it
    found, so that nobody else may write the label meanwhile."""
    for label, value in sorted(labels.items()):
        if label.startswith(DEPLOY_LABEL_PREFIX) and "paused-for" in value:
            return f"{label}={value}"
    return ""


def original_labels(record: TakenOver, labels: Mapping[str, str]) -> dict[str, str | None]:
    """What is to be written to give the node back: labels that somebody else has changed since are theirs."""
    return {label: value for label, value in record.labels.items() if labels.get(label) == TAKEN_OVER_VALUE}
