"""Work that has to leave, and work that waits for it: asks, answers, evictions and starts, from the objects' stamps.

`why` shows the hops of its subject (`move_lines`), `waiting` what a nominated pod waits for, and a job without pods
that its victims are asked. The stamps are annotations (`model.leaving`) and the pods' own times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject, node_of, phase_of
from windlass.diagnose.unstructured import find_condition, nested_map, nested_string
from windlass.model.decision import Ask
from windlass.model.leaving import ASK, Move, read_answers, read_move, read_request, refusal_of
from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import ASK_ANNOTATION, LAST_MOVE_ANNOTATION, ON_PREEMPTION_ANNOTATION
from windlass.model.notices import most_urgent, node_notice
from windlass.model.times import format_duration, format_timestamp, parse_timestamp

WAITING = "WAITING_FOR_PREEMPTION"
MOST_NAMED = 3
ASKED_REMEDY = "nothing has to be done: what is asked goes as soon as it has answered, and then at the latest"


def move_lines(evidence: Evidence, subject: Subject) -> tuple[str, ...]:
    """What the subject is asked now, or that its node goes, and how its last move went, hop by hop."""
    moves = (read_move(_annotations(item), LAST_MOVE_ANNOTATION) for item in (subject.item, *subject.owners))
    move = next((found for found in moves if found is not None), None)
    now = tuple(_open_ask(subject.pods)) or tuple(_unasked_notice(evidence, subject))
    return (*now, *([_last_move(move, subject.pods)] if move is not None else ()))


def _open_ask(pods: Sequence[ClusterObject]) -> Iterator[str]:
    metadata = [ObjectMeta(annotations=_annotations(pod)) for pod in pods]
    request = read_request(metadata)
    if request is None:
        return
    whom = f", to make room for {request.for_whom}" if request.for_whom else ""
    whom = f", since {request.notice}" if request.notice else whom
    yield f"asked at {request.asked} to write a checkpoint by {request.until}{whom}"
    answers, problem = read_answers(metadata, request)
    refused = next((why for answer in answers if (why := refusal_of(answer))), problem)
    valid = next((answer for answer in answers if not refusal_of(answer)), None)
    if valid is not None:
        where = f" in {valid.where}" if valid.where else ""
        answered = format_timestamp(valid.answered_at)
        yield f"answered at {answered}, with a checkpoint of {valid.checkpoint}{where}: it is evicted next"
    elif refused:
        yield f"its answer does not count: {refused}"
    else:
        yield f"it has not answered yet; it is evicted at {request.until} all the same"


def _unasked_notice(evidence: Evidence, subject: Subject) -> Iterator[str]:
    """Its node goes, and it is not asked: it ends there."""
    pods = [pod for pod in subject.pods if phase_of(pod) in ("Pending", "Running")]
    nodes = {name for pod in pods if (name := node_of(pod)) in evidence.nodes}
    notice = most_urgent(found for name in nodes if (found := node_notice(evidence.nodes[name])) is not None)
    if notice is None:
        return
    by = f" by {format_timestamp(notice.until)}" if notice.until else ""
    opted_in = any(_annotations(item).get(ON_PREEMPTION_ANNOTATION) == ASK for item in (*pods, *subject.owners))
    yield f"{notice.text}{by}"
    if not opted_in:
        yield f"it is not asked for a checkpoint before: only work with {ON_PREEMPTION_ANNOTATION}: {ASK} is"


def _last_move(move: Move, pods: Sequence[ClusterObject]) -> str:
    """The hops with the time that each took; of the run after it, the last pod counts."""
    at = parse_timestamp(move.asked)
    hops = [f"last move: asked at {move.asked}"]
    later = [("answered", move.answered), ("evicted", move.evicted), *_starts(move, pods)]
    for hop, moment in later:
        if moment:
            hops.append(f"{hop} {format_duration(max(0, parse_timestamp(moment) - at))} later")
            at = parse_timestamp(moment)
        elif hop == "answered":
            hops.append("not answered")
    return ", ".join(hops)


def _starts(move: Move, pods: Sequence[ClusterObject]) -> list[tuple[str, str]]:
    evicted = parse_timestamp(move.evicted)
    bound = [nested_string(find_condition(pod.data, "PodScheduled"), "lastTransitionTime") for pod in pods]
    statuses = (nested_map(pod.data, "status").get("containerStatuses") for pod in pods)
    states = [nested_map(status, "state", "running") for found in statuses for status in found or ()]
    started = [str(state.get("startedAt", "")) for state in states]
    # A pod that is older than the eviction is one that is about to go.
    hops = [("bound", bound), ("started", started)]
    return [
        (hop, max(times, key=parse_timestamp))
        for hop, times in hops
        if times and all(times) and all(map(node_of, pods)) and min(map(parse_timestamp, times)) >= evicted
    ]


def making_room_finding(evidence: Evidence, item: ClusterObject) -> Finding | None:
    """A node is nominated for the pod, and victims there are asked for a checkpoint or are terminating."""
    nominated = nested_string(item.data, "status", "nominatedNodeName")
    there = list(evidence.pods_on(nominated))
    asked = [pod for pod in there if ASK_ANNOTATION in _annotations(pod)]
    terminating = [pod for pod in there if nested_string(pod.data, "metadata", "deletionTimestamp")]
    if asked and not terminating:
        request = read_request(ObjectMeta(annotations=_annotations(pod)) for pod in asked)
        until = f" until {request.until}" if request is not None else ""
        named = ", ".join(pod.title for pod in asked[:MOST_NAMED])
        message = f"waiting{until} for preempted pods on {nominated} to write a checkpoint: {named}"
        return Finding(WAITING, message, remedy=ASKED_REMEDY)
    if not terminating:
        return None
    named = ", ".join(pod.title for pod in terminating[:MOST_NAMED])
    return Finding(WAITING, f"waiting for preempted pods on {nominated} to terminate: {named}")


def asked_finding(asks: Sequence[Ask]) -> Finding | None:
    """For work whose pods don't exist yet: its victims are asked."""
    if not asks:
        return None
    until = format_timestamp(max(ask.until for ask in asks))
    named = ", ".join(ask.workload for ask in asks[:MOST_NAMED])
    message = f"waiting until {until} for {named} to write a checkpoint, then for its pods to terminate"
    return Finding(WAITING, message, remedy=ASKED_REMEDY)


def _annotations(item: ClusterObject) -> dict[str, str]:
    found = nested_map(item.data, "metadata", "annotations")
    return {str(name): str(text) for name, text in found.items()}
