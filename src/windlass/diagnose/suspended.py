"""Work that is suspended: the subject itself, or a part of it that nobody resumes.

`queue` asks it where no queue holds the subject, `why` where all existing pods are well.
"""

from __future__ import annotations

import re

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.explanations import ADMINISTRATORS
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject
from windlass.diagnose.unstructured import find_condition, nested_bool, nested_map, nested_string
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.times import parse_timestamp

NEW_SECONDS = 60
"""Age up to which a part may still be resumed by whoever has made it."""
PLACES = (("spec", "suspend"), ("spec", "runPolicy", "suspend"))
PARTS_OF_WORK = ("Job", "JobSet", "RayCluster", "RayJob", "PyTorchJob", "MPIJob", "TFJob", "TrainJob", "AppWrapper")
"""Kinds that run once they are resumed; a CronJob is suspended on purpose."""
MANAGES_ALL = re.compile(r"^\s*manageJobsWithoutQueueName:\s*true\b", re.M)


def is_suspended(item: ClusterObject) -> bool:
    return any(nested_bool(item.data, *place) for place in PLACES)


def suspended_object(subject: Subject) -> ClusterObject | None:
    """The subject, the nearest owner, or what it owns above its pods, with `suspend: true`."""
    return next(filter(is_suspended, (subject.item, *subject.owners, *subject.related)), None)


def suspension_finding(evidence: Evidence, subject: Subject, is_decided: bool) -> Finding | None:
    """The subject has no pods since it, or a part of it, is suspended; `is_decided`: its queue has admitted it."""
    item = suspended_object(subject)
    if item is None or subject.pods:
        return None if subject.pods else _paused(subject.item)
    if is_decided:
        message = f"its queue has admitted it, but {item.title} is still suspended (suspend: true)"
        remedy = f"see the log of the controller of {item.kind}; if it does not resume it, set suspend to false"
        return Finding("JOB_SUSPENDED", message, remedy=remedy)
    return _by_manager(evidence, item) or Finding(
        "JOB_SUSPENDED", f"{item.title} is suspended (suspend: true) and is in no queue"
    )


def _paused(item: ClusterObject) -> Finding | None:
    """A Deployment whose rollout is paused makes no new pods."""
    if item.kind != "Deployment" or not nested_bool(item.data, "spec", "paused"):
        return None
    remedy = f"kubectl rollout resume -n {item.namespace} deployment/{item.name}"
    return Finding("JOB_SUSPENDED", f"the rollout of {item.title} is paused (paused: true)", remedy=remedy)


def suspended_part_finding(evidence: Evidence, subject: Subject, now: int) -> Finding | None:
    """A part that the subject's controller has made, and that stays suspended while the subject itself runs."""
    above = {id(item) for item in (subject.item, *subject.owners)}
    if any(map(is_suspended, (subject.item, *subject.owners))) or _starts_in_order(subject.item):
        return None
    for part in subject.related:
        age = now - parse_timestamp(part.created) if part.created else NEW_SECONDS
        is_part = id(part) not in above and part.kind in PARTS_OF_WORK and age >= NEW_SECONDS
        if is_part and is_suspended(part) and not _has_ended(part) and not evidence.children(part):
            made = f"{part.title}, which {subject.title} has made, stays suspended (suspend: true)"
            remedy = (
                f"see the log of the controller of {subject.item.kind}; if it does not resume it, set suspend to false"
            )
            return _by_manager(evidence, part, made) or Finding("JOB_SUSPENDED", made, remedy=remedy)
    return None


def _starts_in_order(item: ClusterObject) -> bool:
    """Whether its parts are resumed one after the other."""
    return nested_string(item.data, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"


def _has_ended(item: ClusterObject) -> bool:
    ended = (find_condition(item.data, kind) for kind in ("Complete", "Failed", "Succeeded"))
    return any(nested_string(condition, "status") == "True" for condition in ended)


def _by_manager(evidence: Evidence, item: ClusterObject, message: str = "") -> Finding | None:
    """A queue manager that suspends work which names no queue; None where no configuration says so."""
    config = manager_config(evidence, item)
    if config is None:
        return None
    said = message or f"{item.title} is suspended (suspend: true)"
    said += f": it names no queue, and Kueue suspends such jobs (manageJobsWithoutQueueName in {config.title})"
    remedy = f"label it {QUEUE_NAME_LABEL} with a queue of its namespace, or have manageJobsWithoutQueueName unset"
    return Finding("JOB_SUSPENDED", said, remedy=remedy, changed_by=ADMINISTRATORS if message else "")


def manager_config(evidence: Evidence, item: ClusterObject) -> ClusterObject | None:
    """The configuration by which Kueue suspends the object again, since it names no queue; None if there is none."""
    configs = evidence.of_kind("ConfigMap") if QUEUE_NAME_LABEL not in item.labels else ()
    for config in configs:
        texts = nested_map(config.data, "data").values()
        if any(isinstance(text, str) and MANAGES_ALL.search(text) for text in texts):
            return config
    return None
