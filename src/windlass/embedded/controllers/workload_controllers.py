"""Controllers of kinds with children: collect the input, call the pure reconcile function, execute its result.

`controller_manager` creates one per kind. A change of an object or of a child enqueues the object's key; so does a
new orphan that its selector matches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.controllers.adoption import claim_children
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.controller_loop import AGAIN
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
    uid_of,
)
from windlass.embedded.controllers.reconcile_result import Create, Patch, ReconcileResult, UpdateStatus
from windlass.embedded.controllers.replicaset import reconcile_replicaset, replica_failure_status
from windlass.embedded.controllers.revisions import CONTROLLER_REVISIONS
from windlass.embedded.controllers.statefulset import reconcile_statefulset
from windlass.model.unstructured import Unstructured

PODS = "pods"
ACTIONS_A_TURN = 32
"""Some 15 ms of work, in which nobody else is served."""
MAX_WAITING_PODS = 5000
"""Of a namespace. Beyond them controllers create pods only as others are placed: a pod that waits takes 20 KB."""


class OwnerController(ABC):
    """The common part; a subclass implements `reconcile` for its kind."""

    name = resource = kind = ""
    children: Sequence[str] = (PODS,)

    def __init__(self, client: Client, cache: Cache) -> None:
        self.cache = cache
        self._executor = ActionExecutor(client, self.name, check_create=self._check_create)
        self._unfinished: dict[str, tuple[object, ReconcileResult]] = {}
        """Key → the state of the owner, and what is left of the result for it."""
        self.resources: Sequence[str] = (self.resource, *self.children)

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == self.resource:
            yield key_of(new)
            return
        for state in (new, old):
            if state is not None:
                yield from self._owner_keys(state)

    def sync(self, key: str, now: float) -> float | None:
        owner, (state, result) = self.cache.get(self.resource, key), self._unfinished.pop(key, (None, None))
        if owner is None:
            return None
        wanted = (uid_of(owner), owner["metadata"].get("generation"), is_deleting(owner))
        if result is None or state != wanted:
            result = self.reconcile(owner, now)
        left = self._executor.execute(result, now, ACTIONS_A_TURN)
        if left:
            self._unfinished[key] = wanted, ReconcileResult(tuple(left), result.requeue_at)
            return AGAIN
        return result.requeue_at

    def _check_create(self, action: Create) -> None:
        namespace = namespace_of(action.owner)
        if action.resource == PODS and self.cache.waiting_pods(namespace) >= MAX_WAITING_PODS:
            message = (
                f"{MAX_WAITING_PODS} pods of namespace {namespace} wait for a node; more are created when fewer wait"
            )
            raise ApiError.too_many_requests(message)

    @abstractmethod
    def reconcile(self, owner: Unstructured, now: float) -> ReconcileResult:
        """What has to be done about one object now."""

    def claim_children(self, owner: Unstructured, resource: str = PODS) -> list[Unstructured]:
        """The owner's children, after releases and adoptions."""
        children, patches = claim_children(
            owner,
            owner["spec"].get("selector"),
            resource,
            self.cache.owned(resource, uid_of(owner)),
            self.cache.orphans(resource, namespace_of(owner)),
        )
        if not patches:
            return children
        self._executor.execute(ReconcileResult(tuple(patches)), 0.0)
        keys = {key_of(child) for child in children}
        return [child for child in self.cache.owned(resource, uid_of(owner)) if key_of(child) in keys]

    def _owner_keys(self, child: Unstructured) -> Iterator[str]:
        reference = controller_of(child)
        if reference is not None:
            if reference.get("kind") == self.kind:
                yield f"{namespace_of(child)}/{reference.get('name')}"
            return
        if is_deleting(child) or not labels_of(child):
            return
        for owner in self.cache.all(self.resource):
            same_namespace = namespace_of(owner) == namespace_of(child)
            if same_namespace and matches_selector(owner["spec"].get("selector"), labels_of(child)):
                yield key_of(owner)


class JobController(OwnerController):
    name, resource, kind = "job-controller", "jobs.batch", "Job"

    def __init__(self, client: Client, cache: Cache) -> None:
        super().__init__(client, cache)
        self._failures: dict[str, Failures] = {}
        self._orphaning_jobs: dict[str, set[str]] = {}
        """Key → UIDs of deleted Jobs of that name whose pods still have the finalizer."""

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == self.resource and event_type == "DELETED":
            self._failures.pop(uid_of(new), None)
            self._orphaning_jobs.setdefault(key_of(new), set()).add(uid_of(new))
        elif resource == PODS and event_type != "DELETED" and has_tracking_finalizer(new):
            self._note_deleted_job(new)
        return super().keys_for(resource, event_type, new, old)

    def sync(self, key: str, now: float) -> float | None:
        for uid in self._orphaning_jobs.pop(key, ()):
            self._release_pods(uid)
        return super().sync(key, now)

    def reconcile(self, job: Unstructured, now: float) -> ReconcileResult:
        failures_before = self._failures.get(uid_of(job), Failures())
        result, failures = reconcile_job(job, self.claim_children(job), now, failures_before)
        self._failures[uid_of(job)] = failures
        return result

    def _note_deleted_job(self, pod: Unstructured) -> None:
        """Notes that the pod's Job was deleted, even if another one has the same name now."""
        owner = controller_of(pod)
        if owner is None or owner.get("kind") != self.kind:
            return
        key = f"{namespace_of(pod)}/{owner.get('name')}"
        job = self.cache.get(self.resource, key)
        if job is None or uid_of(job) != owner.get("uid"):
            self._orphaning_jobs.setdefault(key, set()).add(str(owner.get("uid")))

    def _release_pods(self, uid: str) -> None:
        """Pods of a deleted Job must not be kept by its finalizer."""
        pods = (pod for pod in self.cache.owned(PODS, uid) if has_tracking_finalizer(pod))
        self._executor.execute(
            ReconcileResult(tuple(Patch(PODS, pod, remove_finalizer_patch(pod)) for pod in pods)), 0.0
        )


class ReplicaSetController(OwnerController):
    name, resource, kind = "replicaset-controller", "replicasets.apps", "ReplicaSet"

    def sync(self, key: str, now: float) -> float | None:
        try:
            return super().sync(key, now)
        except ApiError as error:
            owner = self.cache.get(self.resource, key)
            is_refused = error is self._executor.create_error and "is being terminated" not in error.message
            if owner is not None and is_refused:
                status = replica_failure_status(owner, error.message, now)
                self._executor.execute(ReconcileResult((UpdateStatus(self.resource, owner, status),)), now)
            raise

    def reconcile(self, replica_set: Unstructured, now: float) -> ReconcileResult:
        return reconcile_replicaset(replica_set, self.claim_children(replica_set), now)


class DeploymentController(OwnerController):
    name, resource, kind = "deployment-controller", "deployments.apps", "Deployment"
    children = ("replicasets.apps", PODS)

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource != PODS:
            yield from super().keys_for(resource, event_type, new, old)
        elif event_type == "DELETED":  # Recreate waits for the last old pod to go
            reference = controller_of(new)
            owner = self.cache.get("replicasets.apps", f"{namespace_of(new)}/{(reference or {}).get('name')}")
            if owner is not None:
                yield from self._owner_keys(owner)

    def reconcile(self, deployment: Unstructured, now: float) -> ReconcileResult:
        sets = self.claim_children(deployment, "replicasets.apps")
        recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
        pods = {uid_of(item): self.cache.owned(PODS, uid_of(item)) for item in sets} if recreate else {}
        return reconcile_deployment(deployment, sets, pods, now)


class StatefulSetController(OwnerController):
    name, resource, kind = "statefulset-controller", "statefulsets.apps", "StatefulSet"
    children = (PODS, CONTROLLER_REVISIONS, "persistentvolumeclaims")

    def reconcile(self, owner: Unstructured, now: float) -> ReconcileResult:
        revisions = self.cache.owned(CONTROLLER_REVISIONS, uid_of(owner))
        prefix = f"{namespace_of(owner)}/"
        claims = [key_of(claim).removeprefix(prefix) for claim in self.cache.all("persistentvolumeclaims")]
        return reconcile_statefulset(owner, self.claim_children(owner), revisions, frozenset(claims), now)


class DaemonSetController(OwnerController):
    name, resource, kind = "daemonset-controller", "daemonsets.apps", "DaemonSet"
    children = (PODS, CONTROLLER_REVISIONS, "nodes")

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource != "nodes":
            yield from super().keys_for(resource, event_type, new, old)
        elif old is None or event_type == "DELETED" or _matters_to_daemonsets(new, old):
            yield from (key_of(daemon_set) for daemon_set in self.cache.all(self.resource))

    def reconcile(self, daemon_set: Unstructured, now: float) -> ReconcileResult:
        revisions = self.cache.owned(CONTROLLER_REVISIONS, uid_of(daemon_set))
        nodes = list(self.cache.all("nodes"))
        return reconcile_daemonset(daemon_set, self.claim_children(daemon_set), nodes, revisions, now)


def _matters_to_daemonsets(new: Unstructured, old: Unstructured) -> bool:
    """Whether labels or spec differ; heartbeats don't matter."""
    return labels_of(new) != labels_of(old) or (new.get("spec") or {}) != (old.get("spec") or {})


WORKLOAD_CONTROLLERS: Sequence[Callable[[Client, Cache], OwnerController]] = (
    JobController,
    ReplicaSetController,
    DeploymentController,
    StatefulSetController,
    DaemonSetController,
)
