"""The StatefulSet controller: pods with stable names, created and replaced in order. Called by
`workload_controllers`.

`reconcile_statefulset` is pure. OrderedReady takes one step at a time, Parallel all at once; updates go from the
highest ordinal down to the partition.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.controllers.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    scaled_int_or_percent,
)
from windlass.embedded.controllers.pod_state import is_available, is_finished, is_ready, soonest_available
from windlass.embedded.controllers.pod_template import pod_from_template
from windlass.embedded.controllers.reconcile_result import (
    Create,
    Delete,
    ReconcileResult,
    ReconcileResultBuilder,
    UpdateStatus,
)
from windlass.embedded.controllers.replicaset import BURST_REPLICAS, desired_replicas
from windlass.embedded.controllers.revisions import REVISION_HASH_LABEL, sync_revision, truncate_history
from windlass.model.unstructured import Unstructured

RESOURCE = "statefulsets.apps"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


def reconcile_statefulset(
    owner: Unstructured,
    pods: Sequence[Unstructured],
    revisions: Sequence[Unstructured],
    claims: frozenset[str],
    now: float,
) -> ReconcileResult:
    """`claims` are the names of existing PersistentVolumeClaims."""
    plan = ReconcileResultBuilder()
    if is_deleting(owner):
        return plan.build()
    state = _StatefulSetSync(owner, pods, revisions, claims, now, plan)
    state.step()
    plan.add(UpdateStatus(RESOURCE, owner, state.status()))
    plan.requeue(soonest_available(pods, state.min_ready, now))
    return plan.build()


def ordinal(owner: Unstructured, pod: Unstructured) -> int:
    """-1 for a name that does not belong to the set."""
    prefix, _, number = name_of(pod).rpartition("-")
    found = parse_decimal(number) if prefix == name_of(owner) else None
    return -1 if found is None else found


class _StatefulSetSync:
    def __init__(
        self,
        owner: Unstructured,
        pods: Sequence[Unstructured],
        revisions: Sequence[Unstructured],
        claims: frozenset[str],
        now: float,
        plan: ReconcileResultBuilder,
    ) -> None:
        self.owner, self.spec, self.now, self.plan, self.claims = owner, owner["spec"], now, plan, claims
        self.revisions = revisions
        self.pods = {number: pod for pod in pods if (number := ordinal(owner, pod)) >= 0}
        self.min_ready = int(self.spec.get("minReadySeconds") or 0)
        self.first = int((self.spec.get("ordinals") or {}).get("start") or 0)
        self.last = self.first + desired_replicas(owner) - 1
        self.parallel = self.spec.get("podManagementPolicy") == "Parallel"
        self.update_name, self.update_hash = sync_revision(plan, owner, revisions)
        known = (owner.get("status") or {}).get("currentRevision") or self.update_name
        self.current_name = known
        hashes = {name_of(item): labels_of(item).get(REVISION_HASH_LABEL, "") for item in revisions}
        self.current_hash = hashes.get(known) or self.update_hash
        self.templates = {
            labels_of(item).get(REVISION_HASH_LABEL, ""): nested_value(item, "data", "spec", "template") or {}
            for item in revisions
        }

    def step(self) -> None:
        for number in self._ordinals():
            if not self._ensure_pod(number) and not self.parallel:
                return
        if not self._scale_down() and not self.parallel:
            return
        self._update()

    def _ordinals(self) -> Iterator[int]:
        """Those that have a pod, and the next that need one; there may be a thousand million of them."""
        wanted = range(self.first, self.last + 1)
        missing = itertools.islice((number for number in wanted if number not in self.pods), BURST_REPLICAS)
        return heapq.merge(sorted(number for number in self.pods if number in wanted), missing)

    def _ensure_pod(self, number: int) -> bool:
        """Whether the pod of this ordinal exists and is available, so that the next one may be handled."""
        pod = self.pods.get(number)
        if pod is None:
            self._create(number)
            return False
        if is_finished(pod) and not is_deleting(pod):
            self.plan.add(Delete("pods", pod, self.owner))
            return False
        return not is_deleting(pod) and is_available(pod, self.min_ready, self.now)

    def _scale_down(self) -> bool:
        """Deletes from the highest ordinal down, one at a time; returns whether nothing is left to delete."""
        extra = sorted((n for n in self.pods if not self.first <= n <= self.last), reverse=True)
        for number in extra:
            pod = self.pods[number]
            if is_deleting(pod):
                if not self.parallel:
                    return False
                continue
            self.plan.add(Delete("pods", pod, self.owner))
            if not self.parallel:
                return False
        return not extra

    def _update(self) -> None:
        strategy = self.spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        rolling = strategy.get("rollingUpdate") or {}
        first = self.first + int(rolling.get("partition") or 0)
        limit, size = rolling.get("maxUnavailable", 1), desired_replicas(self.owner)
        max_unavailable = max(1, scaled_int_or_percent(limit, size, round_up=False))
        existing = sorted((number for number in self.pods if self.first <= number <= self.last), reverse=True)
        unavailable = size - sum(map(self._is_available, existing))
        for number in (number for number in existing if number >= first):
            pod = self.pods[number]
            if labels_of(pod).get(REVISION_HASH_LABEL) == self.update_hash:
                if not self._is_available(number) and unavailable >= max_unavailable:
                    return
                continue
            if not is_deleting(pod) and (unavailable < max_unavailable or not self._is_available(number)):
                self.plan.add(Delete("pods", pod, self.owner))
                unavailable += self._is_available(number)
            if unavailable >= max_unavailable:
                return

    def _is_available(self, number: int) -> bool:
        pod = self.pods.get(number)
        return pod is not None and not is_deleting(pod) and is_available(pod, self.min_ready, self.now)

    def _create(self, number: int) -> None:
        digest = self._hash_for(number)
        template = self.spec["template"]
        if digest != self.update_hash and self.templates.get(digest):
            template = {key: value for key, value in self.templates[digest].items() if key != "$patch"}
        name = f"{name_of(self.owner)}-{number}"
        pod = pod_from_template(template, self.owner, name=name)
        pod["metadata"]["generateName"] = f"{name_of(self.owner)}-"
        added_labels = {POD_NAME: name, POD_INDEX: str(number), REVISION_HASH_LABEL: digest}
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], **added_labels}
        pod["spec"]["hostname"] = name
        if self.spec.get("serviceName"):
            pod["spec"]["subdomain"] = self.spec["serviceName"]
        for claim in self._claims(pod, name):
            self.plan.add(Create("persistentvolumeclaims", self.owner, claim))
        self.plan.add(Create("pods", self.owner, pod))

    def _hash_for(self, number: int) -> str:
        """Below the partition the current revision stays."""
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        is_below_partition = number < self.first + int(rolling.get("partition") or 0)
        return self.current_hash if is_below_partition else self.update_hash

    def _claims(self, pod: Unstructured, name: str) -> Iterator[Unstructured]:
        """A claim per volumeClaimTemplate, mounted under the template's name."""
        volumes = list(pod["spec"].get("volumes") or ())
        for template in self.spec.get("volumeClaimTemplates") or ():
            volume_name = template["metadata"]["name"]
            claim = f"{volume_name}-{name}"
            volumes = [volume for volume in volumes if volume.get("name") != volume_name]
            volumes.append({"name": volume_name, "persistentVolumeClaim": {"claimName": claim}})
            if claim not in self.claims:
                labels = {**labels_of(template), **(self.spec["selector"].get("matchLabels") or {})}
                metadata = {"name": claim, "namespace": namespace_of(self.owner), "labels": labels}
                if annotations_of(template):
                    metadata["annotations"] = annotations_of(template)
                head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
                yield {**head, "spec": template["spec"]}
        if volumes:
            pod["spec"]["volumes"] = volumes

    def status(self) -> Unstructured:
        counted = [pod for pod in self.pods.values() if not is_deleting(pod) and not is_finished(pod)]
        updated = [pod for pod in counted if labels_of(pod).get(REVISION_HASH_LABEL) == self.update_hash]
        ready = [pod for pod in counted if is_ready(pod)]
        current = self.current_name
        wanted = desired_replicas(self.owner)
        is_complete = len(updated) == wanted == len(ready) == len(counted)
        if is_complete or (self.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            current = self.update_name if is_complete else current
        current_hash = self.update_hash if current == self.update_name else self.current_hash
        in_use = {
            current,
            self.update_name,
            *(labels_of(pod).get(REVISION_HASH_LABEL, "") for pod in self.pods.values()),
        }
        truncate_history(self.plan, self.owner, self.revisions, in_use)
        status = dict(self.owner.get("status") or {})
        status["observedGeneration"] = self.owner["metadata"].get("generation", 1)
        status["replicas"] = len(self.pods)
        status["readyReplicas"] = len(ready) or None
        status["availableReplicas"] = sum(is_available(pod, self.min_ready, self.now) for pod in counted)
        status["currentReplicas"] = (
            sum(labels_of(pod).get(REVISION_HASH_LABEL) == current_hash for pod in counted) or None
        )
        status["updatedReplicas"] = len(updated) or None
        status["currentRevision"] = current
        status["updateRevision"] = self.update_name
        status.setdefault("collisionCount", 0)
        return status
