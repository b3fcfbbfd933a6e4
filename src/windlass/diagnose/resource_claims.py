"""Dynamic resource allocation: claims that name what isn't there, classes that don't exist, devices that are all taken.

Fed by `why` with a pod that waits. Which device a claim would get is its scheduler's to say; here it is asked whether
it could get any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose import log_patterns
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string


def claim_finding(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    """What is wrong with the pod's claims; None where it has none, or nothing shows."""
    claims = nested_maps(pod.data, "spec", "resourceClaims")
    if not claims:
        return None
    found = _dangling(evidence, pod, claims) or _classless(evidence, pod, claims) or _said(evidence, pod)
    return found or _taken(evidence, pod, claims)


def _dangling(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """A claim or template that the pod names and the namespace hasn't got, or a claim that only a container names."""
    for claim in claims:
        for field, kind in (
            ("resourceClaimTemplateName", "ResourceClaimTemplate"),
            ("resourceClaimName", "ResourceClaim"),
        ):
            name = nested_string(claim, field)
            if name and evidence.has_kind(kind) and evidence.get(kind, pod.namespace, name) is None:
                return Finding(
                    "DRA_CLAIM_INVALID",
                    f"there is no {kind} {name} in namespace {pod.namespace}",
                    remedy=MAKE_IT,
                )
    names = {nested_string(claim, "name") for claim in claims}
    for container in nested_maps(pod.data, "spec", "containers"):
        for used in nested_maps(container, "resources", "claims"):
            if nested_string(used, "name") not in names:
                name, claim_name = (nested_string(tree, "name") for tree in (container, used))
                message = f"container {name} uses the claim {claim_name}"
                return Finding("DRA_CLAIM_INVALID", f"{message}, which spec.resourceClaims does not list")
    return None


MAKE_IT = "create it, or name one that exists"


def _classless(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """A device class that a claim asks for, and that the cluster has not got."""
    known = {item.name for item in evidence.of_kind("DeviceClass")}
    for class_name in _classes(evidence, pod.namespace, claims):
        if evidence.has_kind("DeviceClass") and class_name not in known:
            existing = ", ".join(sorted(known)) or "none"
            return Finding(
                "DRA_CLASS_MISSING", f"device class {class_name} does not exist; there are: {existing}"
            )
    return None


def _said(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    for event in evidence.events_of(pod):
        for seen in log_patterns.find_matches_in_text(
            event.message, f"event of {pod.title}", log_patterns.API
        ):
            if seen.code.startswith("DRA_"):
                return Finding(seen.code, "", (f"{seen.origin}: {seen.line}",))
    return None


def _taken(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """Of the drivers behind its classes: no device is published, or all are allocated."""
    if not evidence.has_kind("ResourceSlice"):
        return None
    for name in _classes(evidence, pod.namespace, claims):
        driver = _driver(evidence, name)
        devices = {
            (nested_string(item.data, "spec", "pool", "name"), nested_string(device, "name"))
            for item in evidence.of_kind("ResourceSlice")
            if nested_string(item.data, "spec", "driver") == driver
            for device in nested_maps(item.data, "spec", "devices")
        }
        if driver and not devices:
            message = f"no node publishes a device of {driver} (no ResourceSlice)"
            return Finding("DEVICE_PLUGIN_ABSENT", f"{message}: the driver's kubelet plugin is not there")
        if devices and devices <= set(_allocated(evidence)):
            return Finding(
                "GPU_FULL", f"all {len(devices)} devices of {driver} are allocated to other claims"
            )
    return None


def _driver(evidence: Evidence, name: str) -> str:
    """The driver whose devices a class selects, as its expression says; NVIDIA's classes all select the same one."""
    item = evidence.get("DeviceClass", "", name)
    for selector in nested_maps(item.data if item is not None else {}, "spec", "selectors"):
        found = DRIVER.search(nested_string(selector, "cel", "expression"))
        if found:
            return found[1]
    return "gpu.nvidia.com" if name.endswith(".nvidia.com") else ""


DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


def _allocated(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for claim in evidence.of_kind("ResourceClaim"):
        for result in nested_maps(claim.data, "status", "allocation", "devices", "results"):
            yield nested_string(result, "pool"), nested_string(result, "device")


def _classes(evidence: Evidence, namespace: str, claims: list[dict[str, object]]) -> list[str]:
    """The classes that the claims ask for, as far as their objects are known."""
    found = []
    for claim in claims:
        template = evidence.get(
            "ResourceClaimTemplate", namespace, nested_string(claim, "resourceClaimTemplateName")
        )
        named = evidence.get("ResourceClaim", namespace, nested_string(claim, "resourceClaimName"))
        specs = [nested_map(template.data, "spec", "spec")] if template else []
        specs += [nested_map(named.data, "spec")] if named else []
        for request in (row for spec in specs for row in nested_maps(spec, "devices", "requests")):
            name = nested_string(request, "deviceClassName") or nested_string(
                request, "exactly", "deviceClassName"
            )
            found += [name] if name else []
    return found
