"""Dynamic resource allocation: missing claims, templates and classes, failing drivers, no free devices, IMEX daemons.

`why` calls `claim_finding` for a waiting pod: it checks whether a claim could get any device, not which one.
`pod_startup` calls the rest for a pod with a node: a device that is gone, a ComputeDomain that is not ready.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from windlass.diagnose import log_patterns
from windlass.diagnose.claim_devices import DeviceRequest, device_finding, published_devices, requests_of
from windlass.diagnose.contradictions import working_driver
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.reports import complaints
from windlass.diagnose.stack_components import container_failure
from windlass.diagnose.subject import node_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.diagnose.workload_faults import excluded_plugin, exclusion_finding, workload_fault


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
    """A driver of the claims' classes that has no free device, since its kubelet plugin does not work on some node."""
    for name in _classes(evidence, pod.namespace, claims):
        driver = _driver(evidence, name)
        if not driver or not _devices(evidence, driver) <= set(_allocated(evidence)):
            continue
        served = {
            nested_string(item.data, "spec", "nodeName") or nested_string(item.data, "spec", "pool", "name")
            for item in evidence.of_kind("ResourceSlice")
            if nested_string(item.data, "spec", "driver") == driver
        }
        for owner in evidence.of_kind("DaemonSet"):
            if _serves(evidence, owner, driver):
                found = _plugin_fault(evidence, owner, served, now)
                if found is not None:
                    who = f"{owner.title}, which publishes the devices of {driver}, has no working pod"
                    return msgspec.structs.replace(found, headline=f"{who}: {found.message}")
    return None


def _plugin_fault(evidence: Evidence, owner: ClusterObject, served: set[str], now: int) -> Finding | None:
    """Why a kubelet plugin does not work on a node without devices.

    It loads the driver's library from the host by itself, so what it does not find says nothing about the runtime, and
    where the host's driver works, the fault is its own.
    """
    fault = workload_fault(evidence, owner, now) or excluded_plugin(evidence, owner)
    failing = [item for item in evidence.children(owner) if container_failure(item) and node_of(item) not in served]
    if fault is not None and fault.code not in LIBRARY_CODES:
        codes = ("DEVICE_PLUGIN_ABSENT", *fault.contributing)
        return msgspec.structs.replace(fault, contributing=codes) if failing or not served else None
    if not failing:
        return None
    plugin, node = failing[0], evidence.nodes.get(node_of(failing[0]))
    works = working_driver(evidence, node) if node is not None else ""
    if fault is not None and fault.code == "DRIVER_MISSING" and not works:
        return fault
    proof = fault.evidence if fault is not None else complaints(evidence, plugin)
    message = f"{plugin.title} on node {node_of(plugin)}: {container_failure(plugin)}"
    missing = []
    if not proof:
        missing.append(MissingEvidence("its log", f"kubectl logs -n {plugin.namespace} {plugin.name} --all-containers"))
    if fault is not None and not works:
        missing.append(MissingEvidence("whether the driver works", f"windlass doctor node {node_of(plugin)}"))
    remedy = "read the plugin's log; where the driver works on the host, check the driver root that the plugin is given"
    proof = (*proof, works) if works else proof
    return Finding("DEVICE_PLUGIN_FAILING", message, proof, remedy=remedy, missing=tuple(missing))


LIBRARY_CODES = ("RUNTIME_NOT_CONFIGURED", "DRIVER_MISSING")
"""What the words of a plugin that finds no library seem to say."""


KUBELET_PLUGIN = re.compile(r"\bdra\b|kubelet-?plugin|resource-?driver")


def _serves(evidence: Evidence, owner: ClusterObject, driver: str) -> bool:
    """Whether it is the driver's kubelet plugin: by its name or image, or since its pods' logs name the driver."""
    containers = nested_maps(owner.data, "spec", "template", "spec", "containers")
    names = " ".join([owner.name, *(nested_string(container, "image") for container in containers)])
    if KUBELET_PLUGIN.search(names):
        return True
    bare = re.compile(rf"(?<![\w.-]){re.escape(driver)}(?![\w-])")
    logs = (log for pod in evidence.children(owner) for log in evidence.logs_of(pod))
    return bool(driver) and any(bare.search(line) for log in logs for line in log.lines)


def _devices(evidence: Evidence, driver: str) -> set[tuple[str, str]]:
    """(pool, name) of the devices that the driver publishes."""
    return {device.key for device in published_devices(evidence, driver)}


def _no_free_device(evidence: Evidence, pod: ClusterObject, claims: list[dict[str, object]]) -> Finding | None:
    """The driver of a class publishes no device, or all of its devices are allocated."""
    if not evidence.has_kind("ResourceSlice"):
        return None
    for name in _classes(evidence, pod.namespace, claims):
        driver = _driver(evidence, name)
        if driver and not _devices(evidence, driver):
            message = f"no node publishes a device of {driver} (no ResourceSlice)"
            return Finding("DEVICE_PLUGIN_ABSENT", f"{message}: the driver's kubelet plugin does not run")
    for request in _requests(evidence, pod.namespace, claims):
        driver = _driver(evidence, request.class_name)
        found = device_finding(request, driver, published_devices(evidence, driver), _allocated(evidence))
        if found is not None:
            return found
    return None


def claim_nodes(evidence: Evidence, pod: ClusterObject) -> list[str]:
    """Nodes that publish devices of the drivers of all the pod's claims; empty if that is not known."""
    places: list[set[str]] = []
    for name in _classes(evidence, pod.namespace, nested_maps(pod.data, "spec", "resourceClaims")):
        driver = _driver(evidence, name)
        slices = (item for item in evidence.of_kind("ResourceSlice") if _of_driver(item, driver))
        names = (_node_of_slice(item) for item in slices)
        places.append({name for name in names if name in evidence.nodes})
    return sorted(set.intersection(*places)) if places else []


def _node_of_slice(item: ClusterObject) -> str:
    return nested_string(item.data, "spec", "nodeName") or nested_string(item.data, "spec", "pool", "name")


def _of_driver(item: ClusterObject, driver: str) -> bool:
    return nested_string(item.data, "spec", "driver") == driver


def _requests(evidence: Evidence, namespace: str, claims: list[dict[str, object]]) -> Iterator[DeviceRequest]:
    """What the pod's claims that are not allocated yet ask for, or would ask for by their templates."""
    for claim in claims:
        template = evidence.get("ResourceClaimTemplate", namespace, _named(claim, "resourceClaimTemplateName"))
        named = evidence.get("ResourceClaim", namespace, _named(claim, "resourceClaimName"))
        if template is not None:
            yield from requests_of(template.title, nested_map(template.data, "spec", "spec"))
        elif named is not None and not nested_map(named.data, "status", "allocation"):
            yield from requests_of(named.title, nested_map(named.data, "spec"))


def _driver(evidence: Evidence, name: str) -> str:
    """The driver in the class's CEL expression; for NVIDIA's classes, which may be unknown, gpu.nvidia.com."""
    item = evidence.get("DeviceClass", "", name)
    for selector in nested_maps(item.data if item is not None else {}, "spec", "selectors"):
        found = DRIVER.search(nested_string(selector, "cel", "expression"))
        if found:
            return found[1]
    return "gpu.nvidia.com" if name.endswith(".nvidia.com") else ""


DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


def gone_device_finding(evidence: Evidence, pod: ClusterObject) -> Finding | None:
    """A device that the pod's claim was given, and that its driver publishes no longer in that pool."""
    made = nested_maps(pod.data, "status", "resourceClaimStatuses")
    names = [nested_string(row, "resourceClaimName") for row in made]
    names += [_named(claim, "resourceClaimName") for claim in nested_maps(pod.data, "spec", "resourceClaims")]
    claims = [item for name in names if (item := evidence.get("ResourceClaim", pod.namespace, name)) is not None]
    for claim in claims:
        for row in nested_maps(claim.data, "status", "allocation", "devices", "results"):
            driver, pool, device = (nested_string(row, field) for field in ("driver", "pool", "device"))
            published = [name for place, name in _devices(evidence, driver) if place == pool]
            if published and device not in published:
                message = f"{claim.title} was given device {device}, and pool {pool} of {driver} no longer has it"
                return Finding("DEVICE_ID_STALE", message, (f"published now: {', '.join(sorted(published)[:8])}",))
    return None


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


def with_driver(evidence: Evidence, found: Finding, pod: ClusterObject, now: int) -> Finding:
    """That a driver is not registered with the pod's kubelet, with why its kubelet plugin does not run on that node."""
    node = evidence.nodes.get(node_of(pod))
    if found.code != "DEVICE_PLUGIN_ABSENT" or node is None or "DRA" not in "".join(found.evidence):
        return found
    driver = DRIVER_NAMED.search("".join(found.evidence))
    for owner in evidence.of_kind("DaemonSet"):
        if not _serves(evidence, owner, driver[1] or driver[2] if driver is not None else ""):
            continue
        why = exclusion_finding(owner, node) or workload_fault(evidence, owner, now, node.name)
        crashes = [item for item in evidence.children(owner) if node_of(item) == node.name and container_failure(item)]
        if why is not None:
            contributing = (why.code, *found.contributing)
            return msgspec.structs.replace(found, headline=why.message, contributing=contributing, remedy=why.remedy)
        if crashes:
            message = f"{crashes[0].title} on node {node.name}: {container_failure(crashes[0])}"
            proof = (*found.evidence, *complaints(evidence, crashes[0]))
            return Finding("DEVICE_PLUGIN_FAILING", message, proof, found.contributing)
    missing = MissingEvidence("the driver's pods", f"kubectl get pods -A --field-selector spec.nodeName={node.name}")
    return msgspec.structs.replace(found, missing=(missing,))


DRIVER_NAMED = re.compile(r"DRA driver ([\w.-]+) is not registered|name ([\w.-]+) not found in the list")


# ComputeDomains (multi-node NVLink): the kubelet says only that the domain is not ready


DOMAIN = re.compile(r"compute-?domain|\bimex", re.I)
DAEMON = re.compile(r"compute-?domain-daemon|\bimex", re.I)


def with_daemon(evidence: Evidence, found: Finding, pod: ClusterObject) -> Finding:
    """The finding with the failing IMEX daemon, that of the pod's node first, and what it complains of last."""
    said = any(DOMAIN.search(event.message) for event in evidence.events_of(pod))
    if found.code != "FABRIC_NOT_READY" or not said:
        return found
    node = node_of(pod)
    daemons = [item for item in evidence.of_kind("Pod") if _is_daemon(item)]
    failing = [item for item in daemons if container_failure(item)]
    if not failing:
        command = "kubectl get pods -A -o wide | grep -i computedomain"
        missing = () if daemons else (MissingEvidence("the daemons of the ComputeDomain", command),)
        return msgspec.structs.replace(found, missing=missing)
    daemon = min(failing, key=lambda item: node_of(item) != node)
    failure = container_failure(daemon)
    message = f"the ComputeDomain of node {node} is not ready: {daemon.title}: {failure}"
    proof = (*found.evidence, *complaints(evidence, daemon))
    return Finding("FABRIC_NOT_READY", message, proof, found.contributing, found.remedy)


def _is_daemon(pod: ClusterObject) -> bool:
    containers = [nested_string(container, "name") for container in nested_maps(pod.data, "spec", "containers")]
    return any(DAEMON.search(name) for name in (pod.name, *containers))
