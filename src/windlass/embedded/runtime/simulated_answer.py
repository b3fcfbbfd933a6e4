"""When a simulated pod answers an ask: `sandbox.windlass.dev/answer-after` says how long its checkpoint takes.

`kubelet` writes the answer on the pod, as the work itself would (`windlass.checkpoint`). Without the annotation the pod
never answers.
"""

from __future__ import annotations

from windlass.embedded.api.timestamps import format_time
from windlass.embedded.controllers.objects import annotations_of, is_deleting
from windlass.model.errors import InputError
from windlass.model.leaving import Answer, read_answers, read_request, write
from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import SIMULATED_ANSWER_ANNOTATION
from windlass.model.times import parse_duration
from windlass.model.unstructured import Unstructured


def answer_due_at(pod: Unstructured) -> float | None:
    """When the pod answers; None where it has nothing to answer, has answered, or never will."""
    annotations = annotations_of(pod)
    if SIMULATED_ANSWER_ANNOTATION not in annotations or is_deleting(pod):
        return None
    metadata = [ObjectMeta(annotations=annotations)]
    request = read_request(metadata)
    if request is None or read_answers(metadata, request)[0]:
        return None
    try:
        return float(request.asked_at + parse_duration(annotations[SIMULATED_ANSWER_ANNOTATION]))
    except InputError:
        return None


def answer_text(pod: Unstructured, now: float) -> str:
    request = read_request([ObjectMeta(annotations=annotations_of(pod))])
    return write(Answer(request.id if request is not None else "", format_time(now)))
