"""The subresources that move pods: binding one to a node, and evicting one as far as its disruption budget allows.

`verbs` and the HTTP server call it. Wording is Kubernetes' own (Apache-2.0), since clients tell cases apart by it.
"""

from __future__ import annotations

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.deleter import Deleter
from windlass.embedded.registry.metadata import format_time, with_metadata
from windlass.embedded.registry.options import DeleteOptions
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

_NO_ROOM = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_MOST_DISRUPTED = 2000


class PodSubresources:
    def __init__(self, context: Context, writer: Writer, deleter: Deleter) -> None:
        self._context, self._writer, self._deleter = context, writer, deleter

    def bind(self, namespace: str, name: str, binding: Unstructured, dry_run: bool = False) -> StoredObject:
        """Write the node into a pod that has none, with the binding's labels and annotations."""
        pods = self._context.kind("pods")
        stored = self._context.get(pods, namespace, name)
        metadata, target = _part(binding, "metadata"), _part(binding, "target")
        self._check_target(pods, name, target)
        self._check_preconditions(pods, name, stored, metadata)
        pod = stored.tree
        why = _unbindable(name, pod)
        if why:
            message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
            raise ApiError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
        bound = self._bound(pod, str(target["name"]), metadata)
        return self._writer.write_unchecked(pods, stored, bound, dry_run)

    def _check_target(self, pods: Kind, name: str, target: Unstructured) -> None:
        if target.get("kind") not in (None, "", "Node"):
            shown = target["kind"]
            raise ApiError.bad_request(
                f'target.kind: Unsupported value: "{shown}": supported values: "Node", "<empty>"'
            )
        if not isinstance(target.get("name"), str) or not target["name"]:
            raise ApiError.bad_request("target.name: Required value")

    def _check_preconditions(
        self, pods: Kind, name: str, stored: StoredObject, metadata: Unstructured
    ) -> None:
        uid, known = metadata.get("uid"), stored.tree["metadata"].get("uid")
        if uid and uid != known:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            raise ApiError.conflict(pods, name, why)
        version = metadata.get("resourceVersion")
        if version and version != str(stored.version):
            known = str(stored.version)
            why = (
                f"Precondition failed: ResourceVersion in precondition: {version}, "
                f"ResourceVersion in object meta: {known}"
            )
            raise ApiError.conflict(pods, name, why)

    def _bound(self, pod: Unstructured, node: str, metadata: Unstructured) -> Unstructured:
        """Only what changes is copied."""
        known = pod["metadata"]
        merged: Unstructured = {}
        for field in ("annotations", "labels"):
            added = metadata.get(field)
            if isinstance(added, dict) and added:
                merged[field] = {**(known.get(field) or {}), **added}
        status = dict(pod.get("status") or {})
        status.pop("nominatedNodeName", None)
        scheduled = {"type": "PodScheduled", "status": "True"}
        status["conditions"] = self._conditions(status, scheduled)
        return with_metadata({**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}, **merged)

    def _conditions(self, status: Unstructured, wanted: Unstructured) -> list[Unstructured]:
        """With this condition in place of the one of its type."""
        now = format_time(self._context.clock())
        known = status.get("conditions") or []
        before = next((one for one in known if one.get("type") == wanted["type"]), None)
        since = now
        if before is not None and before.get("status") == wanted["status"]:
            since = before.get("lastTransitionTime", now)
        made = {**wanted, "lastProbeTime": None, "lastTransitionTime": since}
        if before is None:
            return [*known, made]
        return [made if one is before else one for one in known]

    def evict(self, namespace: str, name: str, options: DeleteOptions) -> None:
        """Delete a pod if its budget has room, and take that room."""
        pods = self._context.kind("pods")
        stored = self._context.get(pods, namespace, name)
        pod = stored.tree
        if not _unguarded(pod):
            self._ask_budget(namespace, name, pod, options.dry_run)
        if not options.dry_run:
            status = dict(pod.get("status") or {})
            target = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            self._deleter.check_preconditions(pods, name, stored, options)
            status["conditions"] = self._conditions(status, target)
            self._writer.write_unchecked(
                pods, stored, {**pod, "metadata": dict(pod["metadata"]), "status": status}
            )
        self._deleter.delete(
            pods, namespace, name, DeleteOptions(dry_run=options.dry_run, grace_seconds=options.grace_seconds)
        )

    def _ask_budget(self, namespace: str, name: str, pod: Unstructured, dry_run: bool) -> None:
        kind = self._context.kind("poddisruptionbudgets.policy")
        labels = pod["metadata"].get("labels") or {}
        shelf = self._context.store.storage(kind.storage_resource)
        budgets = [
            each
            for each in shelf.list_current(namespace)
            if matches_selector((each.tree.get("spec") or {}).get("selector"), labels)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            raise ApiError(500, "", _TWO_BUDGETS)
        budget = budgets[0].tree
        status = budget.get("status") or {}
        if not _ready(pod):
            policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
            healthy, desired = int(status.get("currentHealthy", 0)), int(status.get("desiredHealthy", 0))
            if policy == "AlwaysAllow" or healthy >= desired > 0:
                return
        self._take_room(kind, budgets[0], name, dry_run)

    def _take_room(self, kind: Kind, stored: StoredObject, pod: str, dry_run: bool) -> None:
        budget = stored.tree
        name, status = stored.key[1], budget.get("status") or {}
        observed = int(status.get("observedGeneration", 0))
        if observed < int(budget["metadata"].get("generation", 0)):
            message = f"The disruption budget {name} is still being processed by the server."
            raise _refused(message, retry=10)
        allowed = int(status.get("disruptionsAllowed", 0))
        disrupted = status.get("disruptedPods") or {}
        if allowed < 1 or len(disrupted) > _MOST_DISRUPTED:
            needs, has = int(status.get("desiredHealthy", 0)), int(status.get("currentHealthy", 0))
            raise _refused(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
        if dry_run:
            return
        now = format_time(self._context.clock())
        taken = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod: now}}
        self._writer.write_unchecked(
            kind, stored, {**budget, "metadata": dict(budget["metadata"]), "status": taken}
        )


def _refused(message: str, retry: int = 0) -> ApiError:
    return ApiError.too_many_requests(_NO_ROOM, [{"reason": "DisruptionBudget", "message": message}], retry)


def _unbindable(name: str, pod: Unstructured) -> str:
    spec = pod.get("spec") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _unguarded(pod: Unstructured) -> bool:
    """No budget counts it: it has ended, has not started, or is going already."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _ready(pod: Unstructured) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _part(tree: Unstructured, name: str) -> Unstructured:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}
