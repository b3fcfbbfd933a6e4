"""What a small API server has and answers: list, watch, create, patch, bind and evict, on plain trees.

`fake_server` serves it over HTTP, `memory_client` without a network. It has the behaviour that writers depend on:
preconditions on uid and resourceVersion, the status subresource, budgets that refuse evictions. What it doesn't check,
the real API server in `tests/live` does.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from windlass.kube.errors import ApiError, api_error
from windlass.kube.request import APPLY_PATCH, STRATEGIC_PATCH
from windlass.kube.resources import WATCHED_KINDS
from windlass.model.unstructured import Unstructured

CORE = (
    "pods",
    "nodes",
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "events",
    "configmaps",
    "resourcequotas",
)
BUILT_IN = {
    "batch/v1": ("jobs",),
    "policy/v1": ("poddisruptionbudgets",),
    "scheduling.k8s.io/v1": ("priorityclasses",),
    "storage.k8s.io/v1": ("storageclasses", "csinodes", "volumeattachments"),
    "events.k8s.io/v1": ("events",),
    "coordination.k8s.io/v1": ("leases",),
}
SUCCESS = {"kind": "Status", "status": "Success"}


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Unstructured]] = {}
        """Plural → key → object."""
        self.groups: dict[str, tuple[str, ...]] = dict(BUILT_IN)
        self.history: list[tuple[int, str, str, Unstructured]] = []
        """resourceVersion, plural, type, object."""
        self.version = 100
        self.compacted = 0
        self._changed = asyncio.Event()
        self._lists: dict[tuple[str, str], list[Unstructured]] = {}
        """Plural and resourceVersion → the items of a list that is read in pages."""

    def serve_watched_kinds(self) -> None:
        """Everything that Windlass reads, in the best version, as where Kueue and others are installed."""
        for kind in WATCHED_KINDS:
            if kind.group:
                served = f"{kind.group}/{kind.versions[0]}"
                self.groups[served] = tuple(dict.fromkeys((*self.groups.get(served, ()), kind.plural)))

    # What tests do

    def store(self, plural: str, tree: Unstructured) -> Unstructured:
        """Creates or replaces an object."""
        made = copy.deepcopy(tree)
        key = key_of(made)
        self.version += 1
        meta = made.setdefault("metadata", {})
        known = self.objects.setdefault(plural, {}).get(key)
        meta.setdefault("uid", known["metadata"]["uid"] if known else f"uid-{self.version}")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta["resourceVersion"] = str(self.version)
        self.objects[plural][key] = made
        self._add_to_history(plural, "MODIFIED" if known else "ADDED", made)
        return made

    def remove(self, plural: str, key: str) -> None:
        deleted = copy.deepcopy(self.objects[plural].pop(key))
        self.version += 1
        deleted["metadata"]["resourceVersion"] = str(self.version)
        self._add_to_history(plural, "DELETED", deleted)

    def compact(self) -> None:
        """Watches from before now get 410."""
        self.compacted = self.version

    def get(self, plural: str, key: str) -> Unstructured:
        return self.objects[plural][key]

    def wake_watches(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _add_to_history(self, plural: str, kind: str, tree: Unstructured) -> None:
        self.history.append((self.version, plural, kind, copy.deepcopy(tree)))
        self.wake_watches()

    # Requests

    def respond(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, content_type: str = ""
    ) -> Unstructured:
        """The answer to anything but a watch; an `ApiError` if it is refused."""
        parts = path.strip("/").split("/")
        if parts == ["apis"]:
            return self._group_list()
        base = 2 if parts[0] == "api" else 3
        version = "/".join(parts[1:base])
        if len(parts) == base:
            return self._resource_list(version)
        plural, key, subresource = self._target(parts[base:])
        if plural not in (CORE if version == "v1" else self.groups.get(version, ())):
            raise refused(404, "the server could not find the requested resource")
        if key.endswith("/") or not key:
            if method == "POST":
                return self._create(plural, key.rstrip("/"), body)
            return self._list(plural, key, query)
        if method == "POST" and subresource == "binding":
            return self._bind(key, body)
        if method == "POST" and subresource == "eviction":
            return self._evict(key, query, body)
        return self._single(method, plural, key, subresource, body, content_type)

    async def watch(self, path: str, since: int) -> AsyncIterator[Unstructured]:
        """Changes of a collection after this resourceVersion, without end."""
        plural = path.rpartition("/")[2]
        if since < self.compacted:
            message = "too old resource version"
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": message}
            yield {"type": "ERROR", "object": status}
            return
        seen = 0
        while True:
            changed = self._changed
            unseen = self.history[seen:]
            seen += len(unseen)
            for version, changed_plural, kind, tree in unseen:
                if changed_plural == plural and version > since:
                    yield {"type": kind, "object": tree}
            if changed is self._changed:
                await changed.wait()

    def _target(self, rest: list[str]) -> tuple[str, str, str]:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        return plural, f"{namespace}/{name}" if namespace else name, subresource

    def _create(self, plural: str, namespace: str, body: Unstructured) -> Unstructured:
        if namespace:
            body["metadata"]["namespace"] = namespace
        if key_of(body) in self.objects.get(plural, {}):
            raise refused(409, f"{plural} {key_of(body)!r} already exists", "AlreadyExists")
        return self.store(plural, body)

    def _single(
        self, method: str, plural: str, key: str, subresource: str, body: Any, content_type: str
    ) -> Unstructured:
        known = self.objects.get(plural, {}).get(key)
        if known is None and content_type == APPLY_PATCH:
            return self.store(plural, body)
        if known is None:
            raise refused(404, f"{plural} {key!r} not found", "NotFound")
        if method == "GET":
            return known
        if method == "DELETE":
            _check_preconditions(known, body.get("preconditions") or {})
            leaving = copy.deepcopy(known)
            leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return self.store(plural, leaving)
        _check_preconditions(known, body.get("metadata") or {})
        if method == "PUT":
            return self.store(plural, body)
        is_status = subresource == "status"
        patch = {field: value for field, value in body.items() if (field == "status") is is_status}
        merged = merge(copy.deepcopy(known), patch, by_type=content_type == STRATEGIC_PATCH)
        return known if merged == known else self.store(plural, merged)

    def _bind(self, key: str, body: Unstructured) -> Unstructured:
        pod = self.objects.get("pods", {}).get(key)
        if pod is None:
            raise refused(404, f"pods {key!r} not found", "NotFound")
        meta = body.get("metadata") or {}
        _check_preconditions(pod, meta)
        if pod["metadata"].get("deletionTimestamp"):
            raise refused(409, f"pod {key} is being deleted, cannot be assigned to a host", "Conflict")
        if pod["spec"].get("nodeName"):
            taken = f"pod {key} is already assigned to node {pod['spec']['nodeName']}"
            raise refused(409, taken, "Conflict")
        bound = copy.deepcopy(pod)
        bound["spec"]["nodeName"] = body["target"]["name"]
        bound["metadata"].setdefault("annotations", {}).update(meta.get("annotations") or {})
        self.store("pods", bound)
        return SUCCESS

    def _evict(self, key: str, query: Mapping[str, str], body: Unstructured | None) -> Unstructured:
        pod = self.objects.get("pods", {}).get(key)
        if pod is None:
            raise refused(404, f"pods {key!r} not found", "NotFound")
        options = (body or {}).get("deleteOptions") or {}
        _check_preconditions(pod, options.get("preconditions") or {})
        budgets = [budget for budget in self.objects.get("poddisruptionbudgets", {}).values() if _covers(budget, pod)]
        if len(budgets) > 1:
            raise refused(500, "This pod has more than one PodDisruptionBudget, which is not supported.")
        allowed = [budget.get("status", {}).get("disruptionsAllowed", 0) for budget in budgets]
        if allowed == [0]:
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise refused(429, message, cause="DisruptionBudget")
        if "dryRun" not in query:
            for budget in budgets:
                self.store("poddisruptionbudgets", {**budget, "status": {"disruptionsAllowed": allowed[0] - 1}})
            leaving = copy.deepcopy(pod)
            leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.store("pods", leaving)
        return SUCCESS

    def _list(self, plural: str, prefix: str, query: Mapping[str, str]) -> Unstructured:
        found = self.objects.get(plural, {})
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        keys = [key for key in sorted(found) if key.startswith(prefix) and name in ("", key.rpartition("/")[2])]
        # Lists have no kind in their items, as those of the real server.
        items = [
            {field: value for field, value in found[key].items() if field not in ("apiVersion", "kind")} for key in keys
        ]
        version, start = str(self.version), 0
        if "continue" in query:  # the pages of one list are of one moment
            listed_at, _, first = query["continue"].partition(":")
            version, items, start = listed_at, self._lists[plural, listed_at], int(first)
        end = start + int(query["limit"]) if query.get("limit") else len(items)
        token = f"{version}:{end}" if end < len(items) else ""
        if token:
            self._lists[plural, version] = items
        return {"metadata": {"resourceVersion": version, "continue": token}, "items": items[start:end]}

    def _group_list(self) -> Unstructured:
        versions: dict[str, list[Unstructured]] = {}
        for served in self.groups:
            group, _, version = served.partition("/")
            versions.setdefault(group, []).append({"version": version})
        return {"groups": [{"name": group, "versions": served} for group, served in versions.items()]}

    def _resource_list(self, version: str) -> Unstructured:
        plurals = CORE if version == "v1" else self.groups.get(version)
        if plurals is None:
            raise refused(404, "not found")
        return {"resources": [{"name": plural, "kind": ""} for plural in plurals]}


def refused(code: int, message: str, reason: str = "", cause: str = "") -> ApiError:
    status: Unstructured = {"message": message, "reason": reason, "code": code}
    if cause:
        status["details"] = {"causes": [{"reason": cause}]}
    return api_error(code, msgspec.json.encode(status))


def _check_preconditions(known: Unstructured, wanted: Unstructured) -> None:
    for field in ("uid", "resourceVersion"):
        if wanted.get(field) and wanted[field] != known["metadata"][field]:
            raise refused(409, f"the object has been modified: {field} is {known['metadata'][field]}", "Conflict")


def _covers(budget: Unstructured, pod: Unstructured) -> bool:
    labels = pod["metadata"].get("labels") or {}
    wanted = budget["spec"]["selector"]["matchLabels"]
    return budget["metadata"]["namespace"] == pod["metadata"]["namespace"] and wanted.items() <= labels.items()


def merge(tree: Unstructured, patch: Unstructured, *, by_type: bool = False) -> Unstructured:
    """A merge patch; with `by_type`, lists of conditions are merged by their type, as the strategic one does."""
    for key, value in patch.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict):
            tree[key] = merge(tree.get(key) or {}, value, by_type=by_type)
        elif key == "conditions" and by_type:
            conditions = {condition["type"]: condition for condition in (*tree.get(key, ()), *value)}
            tree[key] = list(conditions.values())
        else:
            tree[key] = value
    return tree


def key_of(tree: Unstructured) -> str:
    meta = tree["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
