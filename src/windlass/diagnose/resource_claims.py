"""Dynamic resource allocation: missing claims and templates, missing device classes, no free devices.

Called by `why` for a waiting pod. It checks whether a claim could get any device, not which one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from windlass.diagnose import log_patterns
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.diagnose.workload_faults import workload_fault


def claim_finding(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """What is wrong with the pod's claims; None if it has none or nothing is found."""
    claims = nested_maps(pod.data, "spec", "resourceClaims")
    if not claims:
        return None
    found = _missing_claim(evidence, pod, claims) or _missing_class(evidence, pod, claims) or _reported(evidence, pod)
    return found or _failing_driver(evidence, pod, claims, now) or _no_free_device(evidence, pod, claims)


def _missing_claim(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """A claim or template that does not exist, or a claim of a container that the pod does not list."""
    for claim in claims:
        for field, kind in (
            ("resourceClaimTemplateName", "ResourceClaimTemplate"),
            ("resourceClaimName", "ResourceClaim"),
        ):
            name = _named(claim, field)
            if name and evidence.has_kind(kind) and evidence.get(kind, pod.namespace, name) is None:
                return Finding(
                    "DRA_CLAIM_INVALID",
                    f"there is no {kind} {name} in namespace {pod.namespace}",
                    remedy=MISSING_CLAIM_REMEDY,
                )
    names = {nested_string(claim, "name") for claim in claims}
    for container in nested_maps(pod.data, "spec", "containers"):
        for used in nested_maps(container, "resources", "claims"):
            if nested_string(used, "name") not in names:
                name, claim_name = (nested_string(tree, "name") for tree in (container, used))
                message = f"container {name} uses the claim {claim_name}"
                return Finding("DRA_CLAIM_INVALID", f"{message}, which spec.resourceClaims does not list")
    return None


MISSING_CLAIM_REMEDY = "create it, or name one that exists"


def _named(claim: dict[str, object], field: str) -> str:
    """A name of the entry; before Kubernetes 1.31 it was nested in `source`."""
    return nested_string(claim, field) or nested_string(claim, "source", field)


def _missing_class(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """A device class of a claim that does not exist."""
    kinds = ("DeviceClass", "ResourceClass")
    known = {item.name for kind in kinds for item in evidence.of_kind(kind)}
    for class_name in _classes(evidence, pod.namespace, claims):
        if any(map(evidence.has_kind, kinds)) and class_name not in known:
            existing = ", ".join(sorted(known)) or "none"
            return Finding("DRA_CLASS_MISSING", f"device class {class_name} does not exist; there are: {existing}")
    return None


def _reported(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    for event in evidence.events_of(pod):
        for seen in log_patterns.find_matches_in_text(event.message, f"event of {pod.title}", log_patterns.API):
            if seen.code.startswith("DRA_"):
                return Finding(seen.code, "", (f"{seen.origin}: {seen.line}",))
    return None


def _failing_driver(
    evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]], now: int
) -> Finding | None:
    """A driver of the claims' classes that has published no device, since its kubelet plugin does not work."""
    for name in _classes(evidence, pod.namespace, claims):
        driver = _driver(evidence, name)
        if not driver or _devices(evidence, driver):
            continue
        for owner in evidence.of_kind("DaemonSet"):
            fault = workload_fault(evidence, owner, now) if KUBELET_PLUGIN.search(owner.name) else None
            if fault is not None:
                message = f"{owner.title}, which publishes the devices of {driver}, has no working pod: {fault.message}"
                codes = ("DEVICE_PLUGIN_ABSENT", *fault.contributing)
                return msgspec.structs.replace(fault, headline=message, contributing=codes)
    return None


KUBELET_PLUGIN = re.compile(r"\bdra\b|kubelet-?plugin|resource-?driver")


def _devices(evidence: Evidence, driver: str) -> set[tuple[str, str]]:
    """(pool, name) of the devices that the driver publishes."""
    return {
        (nested_string(item.data, "spec", "pool", "name"), nested_string(device, "name"))
        for item in evidence.of_kind("ResourceSlice")
        if nested_string(item.data, "spec", "driver") == driver
        for device in nested_maps(item.data, "spec", "devices")
    }


def _no_free_device(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """The driver of a class publishes no device, or all of its devices are allocated."""
    if not evidence.has_kind("ResourceSlice"):
        return None
    for name in _classes(evidence, pod.namespace, claims):
        driver = _driver(evidence, name)
        devices = _devices(evidence, driver)
        if driver and not devices:
            message = f"no node publishes a device of {driver} (no ResourceSlice)"
            return Finding("DEVICE_PLUGIN_ABSENT", f"{message}: the driver's kubelet plugin does not run")
        if devices and devices <= set(_allocated(evidence)):
            return Finding("GPU_FULL", f"all {len(devices)} devices of {driver} are allocated to other claims")
    return None


def _driver(evidence: Evidence, name: str) -> str:
    """The driver in the class's CEL expression; for NVIDIA's classes, which may be unknown, gpu.nvidia.com."""
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
    """Device classes of the claims whose objects are in the evidence."""
    found = []
    for claim in claims:
        template = evidence.get("ResourceClaimTemplate", namespace, _named(claim, "resourceClaimTemplateName"))
        named = evidence.get("ResourceClaim", namespace, _named(claim, "resourceClaimName"))
        specs = [nested_map(template.data, "spec", "spec")] if template else []
        specs += [nested_map(named.data, "spec")] if named else []
        found += [name for spec in specs if (name := nested_string(spec, "resourceClassName"))]
        for request in (row for spec in specs for row in nested_maps(spec, "devices", "requests")):
            name = nested_string(request, "deviceClassName") or nested_string(request, "exactly", "deviceClassName")
            found += [name] if name else []
    return found
