"""Defaulting of pods and pod templates: `default_pod`, `default_template`.

Called by `defaults` with decoded objects, which are changed in place. The values are those of the Kubernetes API.
"""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.bounded_cache import bounded_cache
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.unstructured import Unstructured

_DEFAULT_FILE_MODE = 0o644
PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_VOLUMES_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def default_pod(spec: Unstructured) -> None:
    """A pod: the template's defaults, and those that are set only on the pod itself."""
    default_template(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        limits = container["resources"].get("limits")
        if limits:
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}
        if spec.get("hostNetwork"):
            for port in container.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])
    if "resources" in spec:
        _default_pod_level(spec)


def _default_pod_level(spec: Unstructured) -> None:
    """Pod-level limits become requests if neither the pod nor its containers have requests."""
    limits = spec["resources"].get("limits") or {}
    requested = {
        name
        for container in spec["containers"]
        for name in container["resources"].get("requests") or ()
        if name in ("cpu", "memory")
    }
    requests = {name: value for name, value in limits.items() if name not in requested}
    if limits and requests:
        spec["resources"]["requests"] = {**requests, **(spec["resources"].get("requests") or {})}


def default_template(spec: Unstructured) -> None:
    """A pod spec anywhere."""
    spec["containers"] = spec.get("containers") or []
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", DEFAULT_SCHEDULER_NAME)
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field, ()):
            _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


@bounded_cache(1 << 12)
def _pull_policy(image: str) -> str:
    """Always for the tag `latest`, explicit or implied."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].rpartition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def _default_container(container: Unstructured) -> None:
    container.setdefault("resources", {})
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _default_probe(container[name])
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        _default_get((lifecycle.get(hook) or {}).get("httpGet"))


def _default_probe(probe: Unstructured) -> None:
    for name, value in PROBE_DEFAULTS.items():
        probe.setdefault(name, value)
    _default_get(probe.get("httpGet"))
    if "grpc" in probe:
        probe["grpc"]["service"] = probe["grpc"].get("service") or ""


def _default_get(action: Any) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _default_volume(volume: Unstructured) -> None:
    sources = [name for name in volume if name != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for name in _VOLUMES_WITH_MODE:
        if name in volume:
            volume[name].setdefault("defaultMode", _DEFAULT_FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", _pull_policy(volume["image"].get("reference", "")))
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        _default_downward(source.get("downwardAPI"))
    _default_downward(volume.get("downwardAPI"))
    claim = dict.get(volume.get("ephemeral") or {}, "volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_downward(source: Any) -> None:
    for item in (source or {}).get("items", ()):
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def qos_class(spec: Unstructured) -> str:
    """Guaranteed, Burstable or BestEffort, by CPU and memory."""
    is_guaranteed = True
    has_any = False
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container.get("resources") or {}
        container_requests, container_limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            wanted, limit = container_requests.get(name, "0"), container_limits.get(name, "0")
            has_any = has_any or wanted != "0" or limit != "0"
            is_guaranteed = is_guaranteed and limit != "0" and wanted in ("0", limit)
    if "resources" in spec:
        requests, limits = spec["resources"].get("requests") or {}, spec["resources"].get("limits") or {}
        if requests or limits:
            has_any = True
            is_guaranteed = all(
                name in limits and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory")
            )
    if not has_any:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"
