"""Dynamic resource allocation: claims whose class does not exist.

Fed by `why` with a pod that waits. Allocation itself is not judged here; a pod whose claims are not allocated is held.
"""

from __future__ import annotations

from windlass.diagnose import signs, tree
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Finding


def claim_finding(evidence: Evidence, pod: Item) -> Finding | None:
    """A device class that a claim of the pod asks for, and that the cluster has not got."""
    classes = {item.name for item in evidence.of_kind("DeviceClass")}
    for claim in tree.rows(pod.data, "spec", "resourceClaims"):
        for asked in _classes_of(evidence, pod.namespace, claim):
            if evidence.knows("DeviceClass") and asked not in classes:
                there = ", ".join(sorted(classes)) or "none"
                return Finding(
                    "DRA_CLASS_MISSING", f"device class {asked} does not exist; there are: {there}"
                )
    for event in evidence.events_of(pod):
        for seen in signs.look_at(event.message, f"event of {pod.title}", signs.API):
            if seen.code.startswith("DRA_"):
                return Finding(seen.code, "", (f"{seen.origin}: {seen.line}",))
    return None


def _classes_of(evidence: Evidence, namespace: str, claim: dict[str, object]) -> list[str]:
    template = evidence.get("ResourceClaimTemplate", namespace, tree.text(claim, "resourceClaimTemplateName"))
    named = evidence.get("ResourceClaim", namespace, tree.text(claim, "resourceClaimName"))
    specs = [tree.table(template.data, "spec", "spec")] if template else []
    specs += [tree.table(named.data, "spec")] if named else []
    found = []
    for spec in specs:
        for request in tree.rows(spec, "devices", "requests"):
            name = tree.text(request, "deviceClassName") or tree.text(request, "exactly", "deviceClassName")
            found += [name] if name else []
    return found
