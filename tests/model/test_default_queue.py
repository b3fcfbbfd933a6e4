"""Owners that name no queue are in the LocalQueue `default` of their namespace, as Kueue's webhooks have it."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.model.codec import decode_object
from windlass.model.default_queue import with_default_queues

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
LABEL = "kueue.x-k8s.io/queue-name"


def queue(name: str = "default", created: str = OLD, namespace: str = "team") -> Any:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    tree = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": metadata}
    return decode_object({**tree, "spec": {"clusterQueue": "all"}})


def owner(kind: str = "Job", version: str = "batch/v1", created: str = NEW, **metadata: Any) -> Any:
    own = {"name": "work", "namespace": "team", "creationTimestamp": created, **metadata}
    return decode_object({"apiVersion": version, "kind": kind, "metadata": own})


def queue_of(*objects: Any) -> str:
    return str(with_default_queues(objects)[-1].metadata.labels.get(LABEL, ""))  # type: ignore[attr-defined]


def test_an_owner_that_names_none_is_in_the_default_queue() -> None:
    assert queue_of(queue(), owner()) == "default"
    assert queue_of(queue(), owner(created="")) == "default", "a manifest"
    assert queue_of(queue(), owner("JobSet", "jobset.x-k8s.io/v1alpha2")) == "default"
    assert queue_of(queue(), owner("Deployment", "apps/v1")) == "default"


def test_without_a_default_queue_in_its_namespace_it_is_in_none() -> None:
    assert queue_of(queue("main"), owner()) == ""
    assert queue_of(queue(namespace="other"), owner()) == ""


def test_what_was_there_before_the_queue_stays_outside() -> None:
    assert queue_of(queue(created=NEW), owner(created=OLD)) == ""


@pytest.mark.parametrize("label", [LABEL, "kai.scheduler/queue"])
def test_a_queue_that_it_names_counts(label: str) -> None:
    made = with_default_queues([queue(), owner(labels={label: "mine"})])[-1]
    assert made.metadata.labels == {label: "mine"}  # type: ignore[attr-defined]


def test_what_kueue_does_not_default_stays_outside() -> None:
    assert queue_of(queue(), owner("CronJob")) == ""
    assert queue_of(queue(), owner("Job", "batch.volcano.sh/v1alpha1")) == ""
    assert queue_of(queue(), decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})) == ""


def test_what_another_owner_in_a_queue_has_made_is_counted_there() -> None:
    def controlled(kind: str) -> Any:
        return owner(
            ownerReferences=[{"apiVersion": "x/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}]
        )

    assert queue_of(queue(), controlled("JobSet")) == ""
    assert queue_of(queue(), controlled("CronJob")) == "default"
    assert queue_of(queue(), controlled("Workflow")) == "default"
