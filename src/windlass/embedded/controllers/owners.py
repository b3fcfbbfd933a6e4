"""The workers that run the pure controllers of kinds with children: gather, reconcile, carry out.

`controllers.all` makes one for each kind. A change of an object or of one of its children brings the object's key
into the queue; so does a new orphan that its selector matches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.carry import Carrier
from windlass.embedded.controllers.claims import claim
from windlass.embedded.controllers.daemonset import reconcile_daemonset
from windlass.embedded.controllers.deployment import reconcile_deployment
from windlass.embedded.controllers.doors import Door
from windlass.embedded.controllers.job import Failures, reconcile_job
from windlass.embedded.controllers.job_pods import is_tracked, untracked
from windlass.embedded.controllers.objects import (
    Tree,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    selects,
    uid_of,
)
from windlass.embedded.controllers.outcome import Outcome, Patch, Status
from windlass.embedded.controllers.replicaset import reconcile_replicaset, refused_status
from windlass.embedded.controllers.revisions import REVISIONS
from windlass.embedded.controllers.statefulset import reconcile_statefulset

PODS = "pods"


class OwnerWorker(ABC):
    """What all of them share; a subclass says how one object is reconciled."""

    name = resource = kind = ""
    children: Sequence[str] = (PODS,)

    def __init__(self, door: Door, cache: Cache) -> None:
        self.cache = cache
        self._carrier = Carrier(door, self.name)
        self.resources: Sequence[str] = (self.resource, *self.children)

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        if resource == self.resource:
            yield key_of(new)
            return
        for state in (new, old):
            if state is not None:
                yield from self._parents(state)

    def work(self, key: str, now: float) -> float | None:
        thing = self.cache.get(self.resource, key)
        if thing is None:
            return None
        outcome = self.reconcile(thing, now)
        self._carrier.carry_out(outcome, now)
        return outcome.again

    @abstractmethod
    def reconcile(self, thing: Tree, now: float) -> Outcome:
        """What is to be done about one object now."""

    def claimed(self, owner: Tree, resource: str = PODS) -> list[Tree]:
        """The owner's children, after strangers were released and orphans adopted."""
        mine, patches = claim(
            owner,
            owner["spec"].get("selector"),
            resource,
            self.cache.owned(resource, uid_of(owner)),
            self.cache.orphans(resource, namespace_of(owner)),
        )
        if not patches:
            return mine
        self._carrier.carry_out(Outcome(tuple(patches)), 0.0)
        keys = {key_of(child) for child in mine}
        return [child for child in self.cache.owned(resource, uid_of(owner)) if key_of(child) in keys]

    def _parents(self, child: Tree) -> Iterator[str]:
        reference = controller_of(child)
        if reference is not None:
            if reference.get("kind") == self.kind:
                yield f"{namespace_of(child)}/{reference.get('name')}"
            return
        if is_deleting(child) or not labels_of(child):
            return
        for owner in self.cache.all(self.resource):
            here = namespace_of(owner) == namespace_of(child)
            if here and selects(owner["spec"].get("selector"), labels_of(child)):
                yield key_of(owner)


class JobWorker(OwnerWorker):
    name, resource, kind = "job-controller", "jobs.batch", "Job"

    def __init__(self, door: Door, cache: Cache) -> None:
        super().__init__(door, cache)
        self._failures: dict[str, Failures] = {}
        self._left: dict[str, set[str]] = {}
        """Key → uids of Jobs of that name that are gone and have left pods behind."""

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        if resource == self.resource and kind == "DELETED":
            self._failures.pop(uid_of(new), None)
            self._left.setdefault(key_of(new), set()).add(uid_of(new))
        elif resource == PODS and kind != "DELETED" and is_tracked(new):
            self._note_former_life(new)
        return super().keys(resource, kind, new, old)

    def work(self, key: str, now: float) -> float | None:
        for uid in self._left.pop(key, ()):
            self._let_go(uid)
        return super().work(key, now)

    def reconcile(self, thing: Tree, now: float) -> Outcome:
        known = self._failures.get(uid_of(thing), Failures())
        outcome, failures = reconcile_job(thing, self.claimed(thing), now, known)
        self._failures[uid_of(thing)] = failures
        return outcome

    def _note_former_life(self, pod: Tree) -> None:
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
        pods = (pod for pod in self.cache.owned(PODS, uid) if is_tracked(pod))
        self._carrier.carry_out(Outcome(tuple(Patch(PODS, pod, untracked(pod)) for pod in pods)), 0.0)


class ReplicaSetWorker(OwnerWorker):
    name, resource, kind = "replicaset-controller", "replicasets.apps", "ReplicaSet"

    def work(self, key: str, now: float) -> float | None:
        try:
            return super().work(key, now)
        except ApiError as refused:
            thing = self.cache.get(self.resource, key)
            is_told = refused is self._carrier.refused and "is being terminated" not in refused.message
            if thing is not None and is_told:
                status = refused_status(thing, refused.message, now)
                self._carrier.carry_out(Outcome((Status(self.resource, thing, status),)), now)
            raise

    def reconcile(self, thing: Tree, now: float) -> Outcome:
        return reconcile_replicaset(thing, self.claimed(thing), now)


class DeploymentWorker(OwnerWorker):
    name, resource, kind = "deployment-controller", "deployments.apps", "Deployment"
    children = ("replicasets.apps", PODS)

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        if resource != PODS:
            yield from super().keys(resource, kind, new, old)
        elif kind == "DELETED":  # Recreate waits for the last old pod to go
            reference = controller_of(new)
            owner = self.cache.get("replicasets.apps", f"{namespace_of(new)}/{(reference or {}).get('name')}")
            if owner is not None:
                yield from self._parents(owner)

    def reconcile(self, thing: Tree, now: float) -> Outcome:
        sets = self.claimed(thing, "replicasets.apps")
        recreate = (thing["spec"].get("strategy") or {}).get("type") == "Recreate"
        pods = {uid_of(each): self.cache.owned(PODS, uid_of(each)) for each in sets} if recreate else {}
        return reconcile_deployment(thing, sets, pods, now)


class StatefulSetWorker(OwnerWorker):
    name, resource, kind = "statefulset-controller", "statefulsets.apps", "StatefulSet"
    children = (PODS, REVISIONS, "persistentvolumeclaims")

    def reconcile(self, thing: Tree, now: float) -> Outcome:
        revisions = self.cache.owned(REVISIONS, uid_of(thing))
        prefix = f"{namespace_of(thing)}/"
        claims = [key_of(each).removeprefix(prefix) for each in self.cache.all("persistentvolumeclaims")]
        return reconcile_statefulset(thing, self.claimed(thing), revisions, frozenset(claims), now)


class DaemonSetWorker(OwnerWorker):
    name, resource, kind = "daemonset-controller", "daemonsets.apps", "DaemonSet"
    children = (PODS, REVISIONS, "nodes")

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        if resource != "nodes":
            yield from super().keys(resource, kind, new, old)
        elif old is None or kind == "DELETED" or _differs(new, old):
            yield from (key_of(each) for each in self.cache.all(self.resource))

    def reconcile(self, thing: Tree, now: float) -> Outcome:
        revisions = self.cache.owned(REVISIONS, uid_of(thing))
        nodes = list(self.cache.all("nodes"))
        return reconcile_daemonset(thing, self.claimed(thing), nodes, revisions, now)


def _differs(new: Tree, old: Tree) -> bool:
    """As far as a DaemonSet can see; heartbeats don't count."""
    return labels_of(new) != labels_of(old) or (new.get("spec") or {}) != (old.get("spec") or {})


WORKERS: Sequence[Callable[[Door, Cache], OwnerWorker]] = (
    JobWorker,
    ReplicaSetWorker,
    DeploymentWorker,
    StatefulSetWorker,
    DaemonSetWorker,
)
