"""The pod subresources binding and eviction.

`in_process_client` and the HTTP server call it. Messages are Kubernetes' own (Apache-2.0), since clients match on
them.
"""

from __future__ import annotations

from windlass.embedded.api.errors import ApiError, unsupported
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.deleter import Deleter
from windlass.embedded.registry.metadata import with_metadata
from windlass.embedded.registry.options import DeleteOptions
from windlass.embedded.registry.writer import Writer
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

_EXCEEDED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_MAX_DISRUPTED = 2000


class PodSubresources:
    def __init__(self, context: Context, writer: Writer, deleter: Deleter) -> None:
        self._context, self._writer, self._deleter = context, writer, deleter

    def bind(self, namespace: str, name: str, binding: Unstructured, dry_run: bool = False) -> StoredObject:
        """Writes the node into an unbound pod, with the binding's labels and annotations."""
        pods = self._context.kind("pods")
        stored = self._context.get(pods, namespace, name)
        metadata, target = _object_field(binding, "metadata"), _object_field(binding, "target")
        self._check_target(pods, name, target)
        self._check_preconditions(pods, name, stored, metadata)
        pod = stored.tree
        reason = _why_not_bindable(name, pod)
        if reason:
            message = f'Operation cannot be fulfilled on pods/binding "{name}": {reason}'
            raise ApiError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
        bound = self._bound_pod(pod, str(target["name"]), metadata)
        return self._writer.write_unchecked(pods, stored, bound, dry_run)

    def _check_target(self, pods: Kind, name: str, target: Unstructured) -> None:
        if target.get("kind") not in (None, "", "Node"):
            error = unsupported("target.kind", target["kind"], ("Node", "<empty>"))
            raise ApiError.bad_request(str(error))
        if not isinstance(target.get("name"), str) or not target["name"]:
            raise ApiError.bad_request("target.name: Required value")

    def _check_preconditions(self, pods: Kind, name: str, stored: StoredObject, metadata: Unstructured) -> None:
        uid, known = metadata.get("uid"), stored.tree["metadata"].get("uid")
        if uid and uid != known:
            reason = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            raise ApiError.conflict(pods, name, reason)
        version = metadata.get("resourceVersion")
        if version and version != str(stored.version):
            versions = f"{version}, ResourceVersion in object meta: {stored.version}"
            reason = f"Precondition failed: ResourceVersion in precondition: {versions}"
            raise ApiError.conflict(pods, name, reason)

    def _bound_pod(self, pod: Unstructured, node: str, metadata: Unstructured) -> Unstructured:
        """Copies only what changes."""
        known = pod["metadata"]
        merged: Unstructured = {}
        for field in ("annotations", "labels"):
            added = metadata.get(field)
            if isinstance(added, dict) and added:
                merged[field] = {**(known.get(field) or {}), **added}
        status = dict(pod.get("status") or {})
        status.pop("nominatedNodeName", None)
        scheduled = {"type": "PodScheduled", "status": "True"}
        status["conditions"] = self._with_condition(status, scheduled)
        return with_metadata({**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}, **merged)

    def _with_condition(self, status: Unstructured, wanted: Unstructured) -> list[Unstructured]:
        """The conditions with this one set."""
        now = format_time(self._context.clock())
        known = status.get("conditions") or []
        before = next((condition for condition in known if condition.get("type") == wanted["type"]), None)
        since = now
        if before is not None and before.get("status") == wanted["status"]:
            since = before.get("lastTransitionTime", now)
        new = {**wanted, "lastProbeTime": None, "lastTransitionTime": since}
        if before is None:
            return [*known, new]
        return [new if condition is before else condition for condition in known]

    def evict(self, namespace: str, name: str, options: DeleteOptions) -> None:
        """Deletes a pod if its disruption budget allows it, and uses up one disruption."""
        pods = self._context.kind("pods")
        stored = self._context.get(pods, namespace, name)
        pod = stored.tree
        if not _ignores_budgets(pod):
            self._check_budget(namespace, name, pod, options.dry_run)
        if not options.dry_run:
            status = dict(pod.get("status") or {})
            target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            target["message"] = "Eviction API: evicting"
            self._deleter.check_preconditions(pods, name, stored, options)
            status["conditions"] = self._with_condition(status, target)
            self._write_status(pods, stored, status)
        deletion = DeleteOptions(dry_run=options.dry_run, grace_seconds=options.grace_seconds)
        self._deleter.delete(pods, namespace, name, deletion)

    def _write_status(self, kind: Kind, stored: StoredObject, status: Unstructured) -> None:
        tree = {**stored.tree, "metadata": dict(stored.tree["metadata"]), "status": status}
        self._writer.write_unchecked(kind, stored, tree)

    def _check_budget(self, namespace: str, name: str, pod: Unstructured, dry_run: bool) -> None:
        kind = self._context.kind("poddisruptionbudgets.policy")
        labels = pod["metadata"].get("labels") or {}
        storage = self._context.store.storage(kind.storage_resource)
        budgets = [
            stored
            for stored in storage.list_current(namespace)
            if matches_selector((stored.tree.get("spec") or {}).get("selector"), labels)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            raise ApiError(500, "", _TWO_BUDGETS)
        budget = budgets[0].tree
        status = budget.get("status") or {}
        if not _is_ready(pod):
            policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
            healthy, desired = int(status.get("currentHealthy", 0)), int(status.get("desiredHealthy", 0))
            if policy == "AlwaysAllow" or healthy >= desired > 0:
                return
        self._consume_disruption(kind, budgets[0], name, dry_run)

    def _consume_disruption(self, kind: Kind, stored: StoredObject, pod: str, dry_run: bool) -> None:
        budget = stored.tree
        name, status = stored.key[1], budget.get("status") or {}
        observed = int(status.get("observedGeneration", 0))
        if observed < int(budget["metadata"].get("generation", 0)):
            message = f"The disruption budget {name} is still being processed by the server."
            raise _refused(message, retry=10)
        allowed = int(status.get("disruptionsAllowed", 0))
        disrupted = status.get("disruptedPods") or {}
        if allowed < 1 or len(disrupted) > _MAX_DISRUPTED:
            needs, has = int(status.get("desiredHealthy", 0)), int(status.get("currentHealthy", 0))
            raise _refused(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
        if dry_run:
            return
        now = format_time(self._context.clock())
        updated = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod: now}}
        self._write_status(kind, stored, updated)


def _refused(message: str, retry: int = 0) -> ApiError:
    return ApiError.too_many_requests(_EXCEEDED, [{"reason": "DisruptionBudget", "message": message}], retry)


def _why_not_bindable(name: str, pod: Unstructured) -> str:
    spec = pod.get("spec") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _ignores_budgets(pod: Unstructured) -> bool:
    """Finished, not started, or being deleted already."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Unstructured) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _object_field(tree: Unstructured, name: str) -> Unstructured:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}
