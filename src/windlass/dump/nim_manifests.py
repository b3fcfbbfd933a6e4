"""What NVIDIA's NIM operator makes of a NIMService, a NIMCache or a NIMPipeline: Deployments, LeaderWorkerSets, Jobs.

`dump.cluster_loader` calls it for manifests that a user asks about. In a cluster these objects exist beside them, and
count; so of a dump nothing is expanded. Written after the operator's API types (Apache-2.0), group apps.nvidia.com.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.model.unstructured import Unstructured

GROUP = "apps.nvidia.com/"
_POD_FIELDS = ("nodeSelector", "tolerations", "affinity", "runtimeClassName", "schedulerName")
KSERVE = "kserve"


def nim_objects(manifest: Mapping[str, Any]) -> list[Unstructured]:
    """What the operator makes of it; empty where it is no such object, or one that other controllers go on with."""
    spec, kind = manifest.get("spec"), manifest.get("kind")
    if not str(manifest.get("apiVersion", "")).startswith(GROUP) or not isinstance(spec, dict):
        return []
    metadata = manifest.get("metadata") or {}
    if kind == "NIMService":
        return _service(metadata, spec)
    if kind == "NIMCache":
        return [_owner("batch/v1", "Job", f"{metadata.get('name', '')}-job", metadata, {"template": _template(spec)})]
    if kind == "NIMPipeline":
        services = [service for service in spec.get("services") or () if service.get("enabled", True)]
        parts = [_service({**metadata, "name": part.get("name", "")}, part.get("spec") or {}) for part in services]
        return [made for part in parts for made in part]
    return []


def _service(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Unstructured]:
    if spec.get("inferencePlatform") == KSERVE:
        return []
    replicas = spec.get("replicas", 1)
    scale = spec.get("scale") or {}
    if scale.get("enabled"):
        replicas = (scale.get("hpa") or {}).get("minReplicas", 1)
    name, template = metadata.get("name", ""), _template(spec)
    nodes = ((spec.get("multiNode") or {}).get("parallelism") or {}).get("pipeline")
    if nodes:
        group = {"replicas": replicas, "leaderWorkerTemplate": {"size": nodes, "workerTemplate": template}}
        return [_owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", f"{name}-lws", metadata, group)]
    labels = {"app": name}
    template["metadata"]["labels"] = labels | template["metadata"]["labels"]
    deployment = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return [_owner("apps/v1", "Deployment", name, metadata, deployment)]


def _template(spec: Mapping[str, Any]) -> Unstructured:
    container: Unstructured = {"name": "main", "image": "nim", "resources": dict(spec.get("resources") or {})}
    pod: Unstructured = {field: spec[field] for field in _POD_FIELDS if spec.get(field)}
    claims = [_claim(number, claim) for number, claim in enumerate(spec.get("draResources") or ())]
    if claims:
        pod["resourceClaims"] = claims
        container["resources"]["claims"] = [{"name": claim["name"]} for claim in claims]
    metadata = {field: dict(spec.get(field) or {}) for field in ("labels", "annotations")}
    return {"metadata": metadata, "spec": {**pod, "restartPolicy": "Always", "containers": [container]}}


def _claim(number: int, claim: Mapping[str, Any]) -> Unstructured:
    """The operator makes a template of its own where the claim is described in place."""
    named = {field: claim[field] for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field)}
    return {"name": f"claim-{number}", **(named or {"resourceClaimTemplateName": f"claim-{number}"})}


def _owner(version: str, kind: str, name: str, metadata: Mapping[str, Any], spec: Unstructured) -> Unstructured:
    if kind == "Job":
        spec["template"]["spec"]["restartPolicy"] = "Never"
    kept = {field: metadata[field] for field in ("namespace", "labels", "annotations") if metadata.get(field)}
    return {"apiVersion": version, "kind": kind, "metadata": {**kept, "name": name}, "spec": spec}
