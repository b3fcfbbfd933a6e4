"""What the page shows, kept up to date change by change.

Subscribes to the objects of the in-process door (`InProcessClient`), marks what each change touches, and makes the
view of a node or a job again only when somebody is about to read it: `snapshot` for a page that has just opened,
`changes` for those that are open. `web.update_stream` calls both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.web.jobs import job_view
from windlass.web.nodes import node_view
from windlass.web.pods import PodRecord, job_key_of, pod_record
from windlass.web.queues import queue_view

ChangeHandler = Callable[[str, Unstructured, Unstructured | None], None]
KEPT_EVENTS = 200
MOST_TOUCHED = 50_000
JOB_OWNERS = {"jobs.batch": "Job", "deployments.apps": "Deployment", "statefulsets.apps": "StatefulSet"}
REPLICA_SETS = "replicasets.apps"
WORKLOADS = "workloads.kueue.x-k8s.io"
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"
CUSTOM_RESOURCE_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class ObjectSource(Protocol):
    """What the board needs of `windlass.embedded.in_process_client.InProcessClient`."""

    def list(self, resource: str) -> list[Unstructured]: ...

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]: ...


class PageState:
    def __init__(self, source: ObjectSource, on_change: Callable[[], None] = lambda: None) -> None:
        self._source, self._changed = source, on_change
        self._nodes: dict[str, Unstructured] = {}
        self._late: dict[str, tuple[str, Unstructured]] = {}
        """Pods that changed since somebody looked: the newest word of each, read when it is needed."""
        self._pods: dict[str, PodRecord] = {}
        self._on_node: dict[str, dict[str, PodRecord]] = {}
        self._in_job: dict[str, dict[str, PodRecord]] = {}
        self._owners: dict[str, Unstructured] = {}
        self._replica_sets: dict[str, str] = {}
        self._workloads: dict[str, Unstructured] = {}
        self._queues: dict[str, Unstructured] = {}
        self._events: deque[Unstructured] = deque(maxlen=KEPT_EVENTS)
        self._views: dict[str, dict[str, msgspec.Raw]] = {"nodes": {}, "jobs": {}, "queues": {}}
        self._dirty: dict[str, set[str]] = {"nodes": set(), "jobs": set(), "queues": set()}
        self._news: list[Unstructured] = []
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
        """What is new since the last call, as JSON: views that changed, names that went, events; empty if nothing."""
        document: Unstructured = self._refresh()
        if self._news:
            document["events"] = self._news
            self._news = []
        return msgspec.json.encode(document) if document else b""

    def _refresh(self) -> Unstructured:
        """Makes the views again of what was touched; `{what: [view], gone: {what: [name]}}` of those that differ."""
        late, self._late = self._late, {}
        for change, pod in late.values():
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
        pods = list(self._in_job.get(name, {}).values())
        return job_view(name, pods, self._owners.get(name), self._workloads.get(name))

    def _touch(self, what: str, name: str) -> None:
        dirty = self._dirty[what]
        dirty.add(name)
        if len(dirty) > MOST_TOUCHED:
            # Nobody looks, and what came and went meanwhile need not be remembered.
            dirty.intersection_update({*self._views[what], *self._known(what)})
        self._changed()

    def _known(self, what: str) -> set[str]:
        if what == "jobs":
            return {*self._in_job, *self._owners, *self._workloads}
        return set(self._nodes if what == "nodes" else self._queues)

    def _follow_all(self) -> None:
        self._follow("nodes", self._node)
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
        """The queue kinds can be followed once they are defined."""
        if change == "DELETED":
            leave = self._followed.pop(new["metadata"]["name"], None)
            if leave is not None:
                leave()
        elif new["metadata"]["name"] == WORKLOADS:
            self._follow(WORKLOADS, self._workload)
        elif new["metadata"]["name"] == CLUSTER_QUEUES:
            self._follow(CLUSTER_QUEUES, self._queue)

    def _node(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        name = new["metadata"]["name"]
        if change == "DELETED":
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = new
        self._touch("nodes", name)

    def _pod(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        key = _key(new)
        if change == "DELETED" and key not in self._pods:
            self._late.pop(key, None)  # it came and went unseen
        else:
            self._late[key] = (change, new)
        self._changed()

    def _read_pod(self, change: str, new: Unstructured) -> None:
        namespace, kind, name = job_key_of(new)
        if kind == "ReplicaSet":
            kind, name = "Deployment", self._replica_sets.get(f"{namespace}/{name}", name)
        card = pod_record(new, f"{namespace}/{kind}/{name}")
        before = self._pods.get(card.key)
        if before is not None:
            self._forget(before)
        if change != "DELETED":
            self._pods[card.key] = card
            self._on_node.setdefault(card.node, {})[card.key] = card
            self._in_job.setdefault(card.group, {})[card.key] = card
        if card != before:
            self._touch("nodes", card.node)
        self._touch("jobs", card.group)

    def _forget(self, card: PodRecord) -> None:
        self._pods.pop(card.key, None)
        for book, name in ((self._on_node, card.node), (self._in_job, card.group)):
            book[name].pop(card.key, None)
            if not book[name]:
                del book[name]
        self._dirty["nodes"].add(card.node)
        self._dirty["jobs"].add(card.group)

    def _replica_set(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        key = _key(new)
        owner = next(
            (owner for owner in new["metadata"].get("ownerReferences") or () if owner.get("controller")), None
        )
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

    def _keep(self, book: dict[str, Unstructured], job: str, change: str, new: Unstructured) -> None:
        if change == "DELETED":
            book.pop(job, None)
        else:
            book[job] = new
        self._touch("jobs", job)

    def _queue(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        name = new["metadata"]["name"]
        if change == "DELETED":
            self._queues.pop(name, None)
        else:
            self._queues[name] = new
        self._touch("queues", name)

    def _event(self, change: str, new: Unstructured, old: Unstructured | None) -> None:
        if change == "DELETED":
            return
        event = event_view(new)
        for book in (self._events, self._news):
            for at in range(len(book) - 1, max(-1, len(book) - 50), -1):
                if book[at]["id"] == event["id"]:
                    del book[at]  # the same event, told again: the newest word counts
                    break
            book.append(event)
        del self._news[:-KEPT_EVENTS]
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
