"""The workers that run the pure controllers of kinds with children: gather, reconcile, carry out.

`controllers.all` makes one for each kind. A change of an object or of one of its children brings the object's key
into the queue; so does a new orphan that its selector matches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.adoption import claim_children
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.daemonset import reconcile_daemonset
from windlass.embedded.controllers.deployment import reconcile_deployment
from windlass.embedded.controllers.executor import ActionExecutor
from windlass.embedded.controllers.job import Failures, reconcile_job
from windlass.embedded.controllers.job_pods import has_tracking_finalizer, remove_finalizer_patch
from windlass.embedded.controllers.objects import (
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    selector_matches,
    uid_of,
)
from windlass.embedded.controllers.reconcile_result import Patch, ReconcileResult, UpdateStatus
from windlass.embedded.controllers.replicaset import reconcile_replicaset, replica_failure_status
from windlass.embedded.controllers.revisions import CONTROLLER_REVISIONS
from windlass.embedded.controllers.statefulset import reconcile_statefulset
from windlass.model.unstructured import Unstructured

PODS = "pods"


class OwnerController(ABC):
    """What all of them share; a subclass says how one object is reconciled."""

    name = resource = kind = ""
    children: Sequence[str] = (PODS,)

    def __init__(self, client: Client, cache: Cache) -> None:
        self.cache = cache
        self._carrier = ActionExecutor(client, self.name)
        self.resources: Sequence[str] = (self.resource, *self.children)

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource == self.resource:
            yield key_of(new)
            return
        for state in (new, old):
            if state is not None:
                yield from self._parents(state)

    def sync(self, key: str, now: float) -> float | None:
        thing = self.cache.get(self.resource, key)
        if thing is None:
            return None
        outcome = self.reconcile(thing, now)
        self._carrier.execute(outcome, now)
        return outcome.requeue_at

    @abstractmethod
    def reconcile(self, thing: Unstructured, now: float) -> ReconcileResult:
        """What is to be done about one object now."""

    def claim_children(self, owner: Unstructured, resource: str = PODS) -> list[Unstructured]:
        """The owner's children, after strangers were released and orphans adopted."""
        mine, patches = claim_children(
            owner,
            owner["spec"].get("selector"),
            resource,
            self.cache.owned(resource, uid_of(owner)),
            self.cache.orphans(resource, namespace_of(owner)),
        )
        if not patches:
            return mine
        self._carrier.execute(ReconcileResult(tuple(patches)), 0.0)
        keys = {key_of(child) for child in mine}
        return [child for child in self.cache.owned(resource, uid_of(owner)) if key_of(child) in keys]

    def _parents(self, child: Unstructured) -> Iterator[str]:
        reference = controller_of(child)
        if reference is not None:
            if reference.get("kind") == self.kind:
                yield f"{namespace_of(child)}/{reference.get('name')}"
            return
        if is_deleting(child) or not labels_of(child):
            return
        for owner in self.cache.all(self.resource):
            here = namespace_of(owner) == namespace_of(child)
            if here and selector_matches(owner["spec"].get("selector"), labels_of(child)):
                yield key_of(owner)


class JobController(OwnerController):
    name, resource, kind = "job-controller", "jobs.batch", "Job"

    def __init__(self, client: Client, cache: Cache) -> None:
        super().__init__(client, cache)
        self._failures: dict[str, Failures] = {}
        self._left: dict[str, set[str]] = {}
        """Key → uids of Jobs of that name that are gone and have left pods behind."""

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource == self.resource and event_type == "DELETED":
            self._failures.pop(uid_of(new), None)
            self._left.setdefault(key_of(new), set()).add(uid_of(new))
        elif resource == PODS and event_type != "DELETED" and has_tracking_finalizer(new):
            self._note_former_life(new)
        return super().keys_for(resource, event_type, new, old)

    def sync(self, key: str, now: float) -> float | None:
        for uid in self._left.pop(key, ()):
            self._let_go(uid)
        return super().sync(key, now)

    def reconcile(self, thing: Unstructured, now: float) -> ReconcileResult:
        known = self._failures.get(uid_of(thing), Failures())
        outcome, failures = reconcile_job(thing, self.claim_children(thing), now, known)
        self._failures[uid_of(thing)] = failures
        return outcome

    def _note_former_life(self, pod: Unstructured) -> None:
        """Its Job is gone, or another one bears the name by now."""
        owner = controller_of(pod)
        if owner is None or owner.get("kind") != self.kind:
            return
        key = f"{namespace_of(pod)}/{owner.get('name')}"
        job = self.cache.get(self.resource, key)
        if job is None or uid_of(job) != owner.get("uid"):
            self._left.setdefault(key, set()).add(str(owner.get("uid")))

    def _let_go(self, uid: str) -> None:
        """Pods of a Job that is gone must not be kept by its finalizer."""
        pods = (pod for pod in self.cache.owned(PODS, uid) if has_tracking_finalizer(pod))
        self._carrier.execute(
            ReconcileResult(tuple(Patch(PODS, pod, remove_finalizer_patch(pod)) for pod in pods)), 0.0
        )


class ReplicaSetController(OwnerController):
    name, resource, kind = "replicaset-controller", "replicasets.apps", "ReplicaSet"

    def sync(self, key: str, now: float) -> float | None:
        try:
            return super().sync(key, now)
        except ApiError as refused:
            thing = self.cache.get(self.resource, key)
            is_told = refused is self._carrier.create_error and "is being terminated" not in refused.message
            if thing is not None and is_told:
                status = replica_failure_status(thing, refused.message, now)
                self._carrier.execute(ReconcileResult((UpdateStatus(self.resource, thing, status),)), now)
            raise

    def reconcile(self, thing: Unstructured, now: float) -> ReconcileResult:
        return reconcile_replicaset(thing, self.claim_children(thing), now)


class DeploymentController(OwnerController):
    name, resource, kind = "deployment-controller", "deployments.apps", "Deployment"
    children = ("replicasets.apps", PODS)

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource != PODS:
            yield from super().keys_for(resource, event_type, new, old)
        elif event_type == "DELETED":  # Recreate waits for the last old pod to go
            reference = controller_of(new)
            owner = self.cache.get("replicasets.apps", f"{namespace_of(new)}/{(reference or {}).get('name')}")
            if owner is not None:
                yield from self._parents(owner)

    def reconcile(self, thing: Unstructured, now: float) -> ReconcileResult:
        sets = self.claim_children(thing, "replicasets.apps")
        recreate = (thing["spec"].get("strategy") or {}).get("type") == "Recreate"
        pods = {uid_of(each): self.cache.owned(PODS, uid_of(each)) for each in sets} if recreate else {}
        return reconcile_deployment(thing, sets, pods, now)


class StatefulSetController(OwnerController):
    name, resource, kind = "statefulset-controller", "statefulsets.apps", "StatefulSet"
    children = (PODS, CONTROLLER_REVISIONS, "persistentvolumeclaims")

    def reconcile(self, thing: Unstructured, now: float) -> ReconcileResult:
        revisions = self.cache.owned(CONTROLLER_REVISIONS, uid_of(thing))
        prefix = f"{namespace_of(thing)}/"
        claims = [key_of(each).removeprefix(prefix) for each in self.cache.all("persistentvolumeclaims")]
        return reconcile_statefulset(thing, self.claim_children(thing), revisions, frozenset(claims), now)


class DaemonSetController(OwnerController):
    name, resource, kind = "daemonset-controller", "daemonsets.apps", "DaemonSet"
    children = (PODS, CONTROLLER_REVISIONS, "nodes")

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource != "nodes":
            yield from super().keys_for(resource, event_type, new, old)
        elif old is None or event_type == "DELETED" or _differs(new, old):
            yield from (key_of(each) for each in self.cache.all(self.resource))

    def reconcile(self, thing: Unstructured, now: float) -> ReconcileResult:
        revisions = self.cache.owned(CONTROLLER_REVISIONS, uid_of(thing))
        nodes = list(self.cache.all("nodes"))
        return reconcile_daemonset(thing, self.claim_children(thing), nodes, revisions, now)


def _differs(new: Unstructured, old: Unstructured) -> bool:
    """As far as a DaemonSet can see; heartbeats don't count."""
    return labels_of(new) != labels_of(old) or (new.get("spec") or {}) != (old.get("spec") or {})


WORKLOAD_CONTROLLERS: Sequence[Callable[[Client, Cache], OwnerController]] = (
    JobController,
    ReplicaSetController,
    DeploymentController,
    StatefulSetController,
    DaemonSetController,
)
