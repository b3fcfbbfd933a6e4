"""The annotations by which running work is asked to leave, and answers: read, checked and written as text.

    windlass.dev/ask         {"id", "asked", "until", "cause", "for", "notice"}   by Windlass, on the owner and its pods
    windlass.dev/ask-answer  {"id", "checkpoint", "where", "answered"}            by the work, on a pod
    windlass.dev/last-move   {"id", "asked", "answered", "evicted"}               by Windlass, on the owner

`placement.asks` decides by them, `apply.asks` writes them, and `windlass.checkpoint` is the side of the work. Whatever
a tenant writes into its annotations is a text that may be wrong: it counts as no answer, and is said so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import ASK_ANNOTATION, ASK_ANSWER_ANNOTATION
from windlass.model.times import format_timestamp, parse_timestamp

ASK = "ask"
"""The value of `windlass.dev/on-preemption` that asks to be asked."""
ON_NODE = "node://"
"""Begins the place of a checkpoint on the disk of a node: `node://NAME/path`."""
IN_POD = "pod://"
"""Begins the place of a checkpoint in the pod itself (an emptyDir, the container's own disk), which is lost with it."""
MAX_LENGTH = 4096
DEFAULT_ASK_SECONDS, MAX_ASK_SECONDS = 60, 600
"""How long work is asked where neither it nor the configuration says so, and at most."""

Text = TypeVar("Text")


class AskTerms(msgspec.Struct, frozen=True):
    """On what terms work is asked before it is preempted."""

    declared_seconds: int | None = None
    """How long it declares to need; None: the configured time."""
    max_seconds: int | None = None
    """The most that its queue allows; None: only the configured limit counts."""

    def seconds(self, default: int, most: int) -> int:
        wanted = default if self.declared_seconds is None else self.declared_seconds
        return min(wanted, most, *(() if self.max_seconds is None else (self.max_seconds,)))


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ask as it is written on objects."""

    id: str
    asked: str
    until: str
    cause: str = ""
    """The reason of the eviction that follows, as in the plan."""
    for_whom: str = msgspec.field(default="", name="for")
    """Whom it makes room for, without names of other namespaces; empty with a notice."""
    notice: str = ""
    """Why it has to leave, where that is for no other work."""

    @property
    def asked_at(self) -> int:
        return parse_timestamp(self.asked)

    @property
    def until_at(self) -> int:
        return parse_timestamp(self.until)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    checkpoint: str
    """When the checkpoint was complete."""
    where: str = ""
    """Where it is: an object store's URL, `pvc://CLAIM/path`, `node://NAME/path`; empty: not said."""
    answered: str = ""

    @property
    def checkpoint_at(self) -> int:
        return parse_timestamp(self.checkpoint)

    @property
    def answered_at(self) -> int:
        return parse_timestamp(self.answered) or self.checkpoint_at


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last time that the work had to leave."""

    id: str
    asked: str
    answered: str = ""
    """Empty: it had not answered by the deadline."""
    checkpoint: str = ""
    evicted: str = ""


def request_id(uid: str, asked_at: int) -> str:
    """The same for the same ask of the same workload, whoever decides it."""
    return hashlib.sha256(f"{uid} {asked_at}".encode()).hexdigest()[:12]


def new_request(uid: str, now: int, until: int, cause: str = "") -> Request:
    return Request(request_id(uid, now), format_timestamp(now), format_timestamp(until), cause)


def read_request(metadata: Iterable[ObjectMeta]) -> Request | None:
    """The ask that is written on any of these, the earliest one; None where there is none that can be read."""
    texts = {text for meta in metadata if (text := meta.annotations.get(ASK_ANNOTATION))}
    requests = [request for text in texts if (request := _decode(text, Request)) is not None and request.id]
    return min((found for found in requests if found.asked_at and found.until_at), key=_age, default=None)


def read_answers(metadata: Iterable[ObjectMeta], request: Request) -> tuple[list[Answer], str]:
    """The answers to this ask on any of these, and why one can't be read."""
    found, problem = [], ""
    for text in sorted({text for meta in metadata if (text := meta.annotations.get(ASK_ANSWER_ANNOTATION))}):
        answer = _decode(text, Answer)
        if answer is None:
            problem = f"{text[:64]!r} is no answer: write the id of the ask and the time of the checkpoint as JSON"
        elif answer.id == request.id:
            found.append(answer)
    return found, problem


def refusal_of(answer: Answer, leaving_nodes: Iterable[str] = ()) -> str:
    """Why the answer does not count; empty where it does."""
    if not answer.checkpoint_at:
        return f"{answer.checkpoint[:64]!r} is not the time of a checkpoint"
    if answer.where.startswith(IN_POD):
        return f"the checkpoint {answer.where[:128]} is lost with the pod"
    node = answer.where.removeprefix(ON_NODE).partition("/")[0] if answer.where.startswith(ON_NODE) else ""
    if node and node in leaving_nodes:
        return f"the checkpoint {answer.where[:128]} is on node {node}, which goes"
    return ""


def read_move(annotations: Mapping[str, str], name: str) -> Move | None:
    return _decode(annotations.get(name, ""), Move)


def write(value: Request | Answer | Move) -> str:
    """The text of the annotation."""
    return msgspec.json.encode(value).decode()


def _age(request: Request) -> tuple[int, str]:
    return request.asked_at, request.id


def _decode(text: str, type_: type[Text]) -> Text | None:
    try:
        return msgspec.json.decode(text, type=type_) if len(text) <= MAX_LENGTH else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
