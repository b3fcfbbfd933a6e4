"""The state that the page shows, kept up to date from watch events.

Subscribes to objects of `InProcessClient`, marks the nodes, jobs and queues that a change affects as dirty, and renders
them again when `web.update_stream` reads: `snapshot` for a page that was just opened, `drain_changes` for open ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.web.changes import bring_up_view, change_view, repair_view
from windlass.web.jobs import job_view
from windlass.web.nodes import node_view
from windlass.web.pods import PodRecord, controller_key_of, job_key_of, pod_record
from windlass.web.queues import queue_view

ChangeHandler = Callable[[str, Unstructured, Unstructured | None], None]
KEPT_EVENTS = 200
MOST_TOUCHED = 50_000
JOB_OWNERS = {"jobs.batch": "Job", "deployments.apps": "Deployment", "statefulsets.apps": "StatefulSet"}
REPLICA_SETS = "replicasets.apps"
WORKLOADS = "workloads.kueue.x-k8s.io"
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"
OPERATOR_VIEWS: dict[str, tuple[str, Callable[[Unstructured], Unstructured | None]]] = {
    "fleetchanges.windlass.dev": ("changes", change_view),
    "gpurepairs.windlass.dev": ("repairs", repair_view),
    "gpunodes.windlass.dev": ("bringUps", bring_up_view),
}
"""The operator's objects → the list that they are in on the page, and how they are shown there."""
_VIEWS = dict(OPERATOR_VIEWS.values())
CUSTOM_RESOURCE_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class ObjectSource(Protocol):
    """The part of `embedded.in_process_client.InProcessClient` that `PageState` uses."""

    def list(self, resource: str) -> list[Unstructured]: ...

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]: ...


class PageState:
    def __init__(self, source: ObjectSource, on_change: Callable[[], None] = lambda: None) -> None:
        self._source, self._changed = source, on_change
        self._nodes: dict[str, Unstructured] = {}
        self._unread_pods: dict[str, tuple[str, Unstructured]] = {}
        """Pods that changed since the last read, decoded on the next read: only the newest change of each counts."""
        self._pods: dict[str, PodRecord] = {}
        self._on_node: dict[str, dict[str, PodRecord]] = {}
        self._in_job: dict[str, dict[str, PodRecord]] = {}
        self._by_controller: dict[str, dict[str, PodRecord]] = {}
        self._owners: dict[str, Unstructured] = {}
        self._replica_sets: dict[str, str] = {}
        self._workloads: dict[str, Unstructured] = {}
        self._queues: dict[str, Unstructured] = {}
        self._events: deque[Unstructured] = deque(maxlen=KEPT_EVENTS)
        self._operator_objects: dict[str, dict[str, Unstructured]] = {what: {} for what in _VIEWS}
        self._views: dict[str, dict[str, msgspec.Raw]] = {what: {} for what in ("nodes", "jobs", "queues", *_VIEWS)}
        self._dirty: dict[str, set[str]] = {what: set() for what in self._views}
        self._new_events: list[Unstructured] = []
        self._followed: dict[str, Callable[[], None]] = {}
        self._follow_all()

    def close(self) -> None:
        for leave in self._followed.values():
            leave()
        self._followed.clear()

    def snapshot(self) -> bytes:
        """Everything, as one JSON document."""
        self._refresh()
        return msgspec.json.encode(
            {
                **{what: list(views.values()) for what, views in self._views.items()},
                "events": list(self._events),
            }
        )

    def drain_changes(self) -> bytes:
        """Changes since the last call as JSON: changed views, removed names, events; empty if there are none."""
        document: Unstructured = self._refresh()
        if self._new_events:
            document["events"] = self._new_events
            self._new_events = []
        return msgspec.json.encode(document) if document else b""

    def _refresh(self) -> Unstructured:
        """Renders dirty views again; returns `{what: [view], gone: {what: [name]}}` of those that changed."""
        unread, self._unread_pods = self._unread_pods, {}
        for change, pod in unread.values():
            self._read_pod(change, pod)
        document: Unstructured = {}
        gone: dict[str, list[str]] = {}
        for what, dirty in self._dirty.items():
            views = self._views[what]
            changed: list[msgspec.Raw] = []
            for name in sorted(dirty):
                view = self._make(what, name)
                if view is None:
                    if views.pop(name, None) is not None:
                        gone.setdefault(what, []).append(name)
                    continue
                raw = msgspec.Raw(msgspec.json.encode(view))
                if bytes(views.get(name, b"")) != bytes(raw):
                    views[name] = raw
                    changed.append(raw)
            dirty.clear()
            if changed:
                document[what] = changed
        if gone:
            document["gone"] = gone
        return document

    def _make(self, what: str, name: str) -> Unstructured | None:
        if what == "nodes":
            tree = self._nodes.get(name)
            pods = [pod for pod in self._on_node.get(name, {}).values() if pod.occupies_node]
            return node_view(tree, pods) if tree is not None else None
        if what == "queues":
            tree = self._queues.get(name)
            return queue_view(tree) if tree is not None else None
        if what in _VIEWS:
            tree = self._operator_objects[what].get(name)
            return _VIEWS[what](tree) if tree is not None else None
        pods = list(self._in_job.get(name, {}).values())
        if not pods and name in self._by_controller:
            return None  # its pods are shown with their group
        return job_view(name, pods, self._owners.get(name), self._workloads.get(name))

    def _touch(self, what: str, name: str) -> None:
        dirty = self._dirty[what]
        dirty.add(name)
        if len(dirty) > MOST_TOUCHED:
            # No page is open: names that were created and deleted meanwhile need not be kept.
            dirty.intersection_update({*self._views[what], *self._known(what)})
        self._changed()

    def _known(self, what: str) -> set[str]:
        if what == "jobs":
            return {*self._in_job, *self._owners, *self._workloads}
        if what in _VIEWS:
            return set(self._operator_objects[what])
        return set(self._nodes if what == "nodes" else self._queues)

    def _follow_all(self) -> None:
        self._follow("nodes", self._named("nodes", self._nodes))
        self._follow(REPLICA_SETS, self._replica_set)
        for resource, kind in JOB_OWNERS.items():
            self._follow(resource, self._owner_of(kind))
        self._follow("pods", self._pod)
        self._follow("events", self._event)
        self._follow(CUSTOM_RESOURCE_DEFINITIONS, self._definition)

    def _follow(self, resource: str, tell: ChangeHandler) -> None:
        if resource not in self._followed:
            for obj in self._source.list(resource):
                tell("ADDED", obj, None)
            self._followed[resource] = self._source.subscribe(resource, tell)

    def _definition(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        """Subscribes to the kinds of Kueue and of the operator once their CRDs exist."""
        name = new["metadata"]["name"]
        if change == "DELETED":
            leave = self._followed.pop(name, None)
            if leave is not None:
                leave()
        elif name == WORKLOADS:
            self._follow(WORKLOADS, self._workload)
        elif name == CLUSTER_QUEUES:
            self._follow(CLUSTER_QUEUES, self._named("queues", self._queues))
        elif name in OPERATOR_VIEWS:
            what = OPERATOR_VIEWS[name][0]
            self._follow(name, self._named(what, self._operator_objects[what]))

    def _named(self, what: str, objects: dict[str, Unstructured]) -> ChangeHandler:
        """Keeps objects that have no namespace and a view of their own."""

        def keep(change: str, new: Unstructured, old: Unstructured | None) -> None:
            name = new["metadata"]["name"]
            if change == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = new
            self._touch(what, name)

        return keep

    def _pod(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        key = _key(new)
        if change == "DELETED" and key not in self._pods:
            self._unread_pods.pop(key, None)  # created and deleted between two reads
        else:
            self._unread_pods[key] = (change, new)
        self._changed()

    def _read_pod(self, change: str, new: Unstructured) -> None:
        controller = controller_key_of(new)
        controller_job = self._job_of(*controller) if controller is not None else ""
        card = pod_record(new, self._job_of(*job_key_of(new)), controller_job)
        before = self._pods.get(card.key)
        if before is not None:
            self._forget(before)
        if change != "DELETED":
            self._pods[card.key] = card
            self._on_node.setdefault(card.node, {})[card.key] = card
            self._in_job.setdefault(card.group, {})[card.key] = card
            self._by_controller.setdefault(card.controller, {})[card.key] = card
        if card != before:
            self._touch("nodes", card.node)
        self._touch("jobs", card.group)
        if card.controller:
            self._touch("jobs", card.controller)

    def _job_of(self, namespace: str, kind: str, name: str) -> str:
        if kind == "ReplicaSet":
            kind, name = "Deployment", self._replica_sets.get(f"{namespace}/{name}", name)
        return f"{namespace}/{kind}/{name}"

    def _forget(self, card: PodRecord) -> None:
        self._pods.pop(card.key, None)
        for index, name in (
            (self._on_node, card.node),
            (self._in_job, card.group),
            (self._by_controller, card.controller),
        ):
            index[name].pop(card.key, None)
            if not index[name]:
                del index[name]
        self._dirty["nodes"].add(card.node)
        self._dirty["jobs"] |= {card.group, card.controller} - {""}

    def _replica_set(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        key = _key(new)
        owner = next((owner for owner in new["metadata"].get("ownerReferences") or () if owner.get("controller")), None)
        if change == "DELETED":
            self._replica_sets.pop(key, None)
        elif owner is not None:
            self._replica_sets[key] = owner["name"]

    def _owner_of(self, kind: str) -> ChangeHandler:
        def tell(change: str, new: Unstructured, old: Unstructured | None) -> None:
            meta = new["metadata"]
            self._keep(self._owners, f"{meta['namespace']}/{kind}/{meta['name']}", change, new)

        return tell

    def _workload(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        for owner in new["metadata"].get("ownerReferences") or ():
            kind, name = owner["kind"], owner["name"]
            self._keep(self._workloads, f"{new['metadata']['namespace']}/{kind}/{name}", change, new)

    def _keep(self, objects: dict[str, Unstructured], job: str, change: str, new: Unstructured) -> None:
        if change == "DELETED":
            objects.pop(job, None)
        else:
            objects[job] = new
        self._touch("jobs", job)

    def _event(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        if change == "DELETED":
            return
        event = event_view(new)
        for events in (self._events, self._new_events):
            for at in range(len(events) - 1, max(-1, len(events) - 50), -1):
                if events[at]["id"] == event["id"]:
                    del events[at]  # the same event with a new count: the newest one stays
                    break
            events.append(event)
        del self._new_events[:-KEPT_EVENTS]
        self._changed()


def event_view(tree: Mapping[str, Any]) -> Unstructured:
    about = tree.get("involvedObject") or tree.get("regarding") or {}
    meta = tree["metadata"]
    when = tree.get("lastTimestamp") or tree.get("eventTime") or tree.get("firstTimestamp")
    return {
        "id": meta.get("uid") or _key(tree),
        "at": parse_timestamp(when or meta.get("creationTimestamp") or ""),
        "type": tree.get("type") or "Normal",
        "reason": tree.get("reason") or "",
        "message": tree.get("message") or tree.get("note") or "",
        "kind": about.get("kind") or "",
        "ns": about.get("namespace") or "",
        "name": about.get("name") or "",
        "count": int(tree.get("count") or (tree.get("series") or {}).get("count") or 1),
    }


def _key(tree: Mapping[str, Any]) -> str:
    return f"{tree['metadata'].get('namespace', '')}/{tree['metadata']['name']}"
