"""ResourceQuotas: used up, or written with a key that has no effect.

Called by `why` for owners without pods, by `root_causes` for the pod's namespace, and by `check`.
"""

from __future__ import annotations

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject, template_pods
from windlass.diagnose.unstructured import nested_map
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.model.requests import format_amount, is_extended_resource, parse_amount, pod_requests


def quota_finding(evidence: Evidence, subject: Subject) -> Finding | None:
    """A quota of the namespace that one of the subject's pods would exceed."""
    pods, _ = template_pods(subject.item)
    for pod in pods:
        requests = pod_requests(pod)
        for quota in evidence.of_kind("ResourceQuota"):
            if quota.namespace != subject.item.namespace:
                continue
            hard, used = (nested_map(quota.data, "spec", "hard"), nested_map(quota.data, "status", "used"))
            for key, limit in hard.items():
                name = key.removeprefix("requests.").removeprefix("limits.")
                asked = _limits(pod).get(name) if key.startswith("limits.") else requests.get(name)
                if asked is None or is_ineffective_key(key):
                    continue
                over = _over(name, asked, limit, used.get(key, 0))
                if over:
                    return Finding(
                        "RESOURCE_QUOTA_EXCEEDED",
                        f"ResourceQuota {quota.name} of the namespace would be exceeded: {over}",
                    )
    return None


def _limits(pod: Pod) -> dict[str, int]:
    """The limits of the pod's containers, summed."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in container.resources.limits.items():
            total[name] = total.get(name, 0) + parse_amount(name, str(amount))
    return total


def _over(name: str, requested: int, limit: object, used: object) -> str:
    try:
        top, taken = parse_amount(name, str(limit)), parse_amount(name, str(used))
    except InputError:
        return ""
    if taken + requested <= top:
        return ""
    amounts = [format_amount(name, amount) for amount in (requested, taken, top)]
    return f"{amounts[0]} {name} requested, {amounts[1]} of {amounts[2]} used"


def is_ineffective_key(key: str) -> bool:
    """Kubernetes enforces quotas of extended resources only on `requests.<resource>`."""
    bare = key.removeprefix("limits.")
    return is_extended_resource(bare) and "/" in bare and not key.startswith("requests.")


def namespace_key_finding(evidence: Evidence, pod: Pod) -> Finding | None:
    """A quota of the pod's namespace with a key that has no effect."""
    for quota in evidence.of_kind("ResourceQuota"):
        if quota.namespace == (pod.metadata.namespace or "default"):
            found = ineffective_key_finding(quota)
            if found is not None:
                return found
    return None


def ineffective_key_finding(quota: ClusterObject) -> Finding | None:
    """`limits.nvidia.com/gpu` and a bare `nvidia.com/gpu` limit nothing."""
    for key in nested_map(quota.data, "spec", "hard"):
        if is_ineffective_key(key):
            return Finding("QUOTA_KEY_INVALID", f"key {key} of ResourceQuota {quota.name} has no effect")
    return None
