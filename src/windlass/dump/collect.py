"""Collects from a live cluster what diagnosis needs: objects, events, and logs of the GPU stack. Read-only.

Called by `windlass dump`, and by `why`, `check` and `doctor` without a dump, so that both get the same evidence. What
may not be read is listed in `not_readable`; with rights in a single namespace, only that one is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from windlass.dump.configuration import CONFIG_MAP_SUFFIX, HASH_ANNOTATION, PUBLISHED_LABEL
from windlass.dump.container_logs import HostLog, PodLog, containers_of, limited_resources, read_logs
from windlass.dump.raw_objects import RawObject, objects_of_list
from windlass.kube.client import KubeClient
from windlass.kube.discovery import discover
from windlass.kube.errors import ApiError, Forbidden
from windlass.kube.freeze import FREEZE_CONFIG_MAP, OBEYED_ANNOTATION, SCHEDULER_NAMESPACE, freeze_path
from windlass.kube.request import Request
from windlass.kube.resources import CONFIG_MAPS, WATCHED_KINDS, Kind, Resource
from windlass.model.meta import ObjectMeta

PAGE_SIZE = "500"
MAX_LOGGED_PODS = 400
"""Applies to the pods of the GPU stack and to failing pods separately."""
DIAGNOSIS_KINDS: tuple[Kind, ...] = (
    Kind("Event", "events", "", ("v1",)),
    Kind("ResourceQuota", "resourcequotas", "", ("v1",)),
    Kind("Deployment", "deployments", "apps", ("v1",)),
    Kind("ReplicaSet", "replicasets", "apps", ("v1",)),
    Kind("StatefulSet", "statefulsets", "apps", ("v1",)),
    Kind("DaemonSet", "daemonsets", "apps", ("v1",)),
    Kind("CronJob", "cronjobs", "batch", ("v1",)),
    Kind("Lease", "leases", "coordination.k8s.io", ("v1",)),
    Kind("RayService", "rayservices", "ray.io", ("v1",)),
    Kind("DeviceClass", "deviceclasses", "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), False),
    Kind("ResourceSlice", "resourceslices", "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), False),
    Kind("ResourceClaim", "resourceclaims", "resource.k8s.io", ("v1", "v1beta2", "v1beta1")),
    Kind("ResourceClaimTemplate", "resourceclaimtemplates", "resource.k8s.io", ("v1", "v1beta2", "v1beta1")),
    Kind("NodeClaim", "nodeclaims", "karpenter.sh", ("v1", "v1beta1"), False),
    Kind("NodePool", "nodepools", "karpenter.sh", ("v1", "v1beta1"), False),
    Kind("GPUStack", "gpustacks", "windlass.dev", ("v1alpha1",), False),
    Kind("GPUNode", "gpunodes", "windlass.dev", ("v1alpha1",), False),
    Kind("FleetChange", "fleetchanges", "windlass.dev", ("v1alpha1",), False),
    Kind("GPURepair", "gpurepairs", "windlass.dev", ("v1alpha1",), False),
)
"""Read in addition to the kinds of the engine."""
GPU_STACK = re.compile(
    r"device-plugin|nvidia|gpu-operator|gpu-feature|nfd-|mig-manager|mps-control|dcgm|fabric-?manager"
    r"|cluster-autoscaler|karpenter|kmm-worker"
)
"""Pods of the GPU stack and of autoscalers: their logs and the ConfigMaps of their namespaces are collected."""
CONTROLLERS = re.compile(r"controller|operator|scheduler|-manager|webhook|admission|binder|reservation")
"""Pods that decide about others' pods: their logs name the objects that they refuse."""
MAX_CONTROLLERS = 40

Progress = Callable[[str, int, int], None]


class CollectedCluster(msgspec.Struct):
    """The readable part of a cluster."""

    objects: list[RawObject] = []
    listed_kinds: set[str] = set()
    """Kinds that were read completely."""
    logs: list[PodLog] = []
    hosts: list[HostLog] = []
    not_readable: list[str] = []
    """What could not be read, and why, in words."""


async def collect_cluster(
    client: KubeClient, namespace: str = "", progress: Progress = lambda what, done, total: None
) -> CollectedCluster:
    """Everything that diagnosis reads. `namespace` is read where the whole cluster may not be."""
    found = CollectedCluster([], set(), [], [], [])
    resources = await discover(client, (*WATCHED_KINDS, *DIAGNOSIS_KINDS))
    for done, resource in enumerate(resources):
        progress(resource.plural, done, len(resources) + 1)
        await _collect_kind(client, resource, namespace or client.config.namespace, found)
    progress("logs", len(resources), len(resources) + 1)
    await _collect_stack(client, found)
    await _collect_configuration(client, found)
    await collect_freeze(client, found)
    return found


async def _collect_kind(client: KubeClient, resource: Resource, namespace: str, found: CollectedCluster) -> None:
    try:
        found.objects += await _pages(client, resource.collection, resource)
        found.listed_kinds.add(resource.kind)
        return
    except Forbidden:
        if not resource.namespaced:
            found.not_readable.append(f"{resource.plural}: not allowed")
            return
    except ApiError as error:
        found.not_readable.append(f"{resource.plural}: {error}")
        return
    try:
        found.objects += await _pages(client, resource.namespace_collection(namespace), resource)
        found.not_readable.append(f"{resource.plural} of other namespaces than {namespace}: not allowed")
    except ApiError:
        found.not_readable.append(f"{resource.plural}: not allowed")


async def _pages(client: KubeClient, path: str, resource: Resource, selector: str = "") -> list[RawObject]:
    found: list[RawObject] = []
    more = ""
    only = (("labelSelector", selector),) if selector else ()
    while True:
        query = (("limit", PAGE_SIZE), *only, *((("continue", more),) if more else ()))
        body = await client.send(Request("GET", path, query))
        objects, more = objects_of_list(body, resource.kind, resource.api_version)
        found += objects
        if not more:
            return found


async def _collect_stack(client: KubeClient, found: CollectedCluster) -> None:
    """Logs of the GPU stack's pods, and the ConfigMaps of their namespaces."""
    pods = [obj for obj in found.objects if obj.header.kind == "Pod"]
    pods = [pod for pod in pods if GPU_STACK.search(pod.header.metadata.name)]
    namespaces = sorted({obj.header.metadata.namespace for obj in pods})
    for namespace in namespaces:
        try:
            found.objects += await _pages(client, CONFIG_MAPS.namespace_collection(namespace), CONFIG_MAPS)
        except ApiError as error:
            found.not_readable.append(f"configmaps of {namespace}: {error}")
    places = [place for pod in pods[:MAX_LOGGED_PODS] for place in containers_of(pod.data)]
    places += [place for pod in _controllers(found, pods)[:MAX_CONTROLLERS] for place in containers_of(pod.data)]
    own = [obj.data for obj in found.objects if obj.header.kind == "Pod" and obj not in pods and _fails(obj.data)]
    places += [place for tree in own[:MAX_LOGGED_PODS] for place in containers_of(tree)]
    found.logs += await read_logs(client, places)


def _controllers(found: CollectedCluster, others: list[RawObject]) -> list[RawObject]:
    known = {id(pod) for pod in others}
    pods = [obj for obj in found.objects if obj.header.kind == "Pod" and id(obj) not in known]
    return [pod for pod in pods if CONTROLLERS.search(f"{pod.header.metadata.namespace}/{pod.header.metadata.name}")]


async def _collect_configuration(client: KubeClient, found: CollectedCluster) -> None:
    """Published configurations. Without the right to list ConfigMaps, those are read that a Lease announces."""
    known = {_key(obj.header.metadata) for obj in found.objects if obj.header.kind == "ConfigMap"}
    try:
        published = await _pages(client, CONFIG_MAPS.collection, CONFIG_MAPS, PUBLISHED_LABEL)
    except ApiError:
        published = [config_map for key in _announced(found) for config_map in await _config_map(client, key, found)]
    found.objects += [config_map for config_map in published if _key(config_map.header.metadata) not in known]


def _announced(found: CollectedCluster) -> list[str]:
    leases = (obj.header.metadata for obj in found.objects if obj.header.kind == "Lease")
    return [f"{_key(lease)}{CONFIG_MAP_SUFFIX}" for lease in leases if HASH_ANNOTATION in lease.annotations]


async def collect_freeze(client: KubeClient, found: CollectedCluster) -> None:
    """Whether Windlass is frozen; who asks may not see that, and in most clusters it never was."""
    known = {_key(obj.header.metadata) for obj in found.objects if obj.header.kind == CONFIG_MAPS.kind}
    leases = [obj.header.metadata for obj in found.objects if obj.header.kind == "Lease"]
    places = {SCHEDULER_NAMESPACE, *(lease.namespace for lease in leases if OBEYED_ANNOTATION in lease.annotations)}
    for namespace in sorted(places):
        if f"{namespace}/{FREEZE_CONFIG_MAP}" not in known:
            with suppress(ApiError):
                body = await client.send(Request("GET", freeze_path(namespace)))
                found.objects += _one_config_map(body)


async def _config_map(client: KubeClient, key: str, found: CollectedCluster) -> list[RawObject]:
    try:
        body = await client.send(Request("GET", CONFIG_MAPS.path(key)))
    except ApiError as error:
        found.not_readable.append(f"configmaps {key}, the scheduler's configuration: {error}")
        return []
    return _one_config_map(body)


def _one_config_map(body: bytes) -> list[RawObject]:
    return objects_of_list(b'{"items":[' + body + b"]}", CONFIG_MAPS.kind, CONFIG_MAPS.api_version)[0]


def _key(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _fails(pod: dict[str, Any]) -> bool:
    """Whether a pod with devices has failed or restarted: its log may say why."""
    spec, status = pod.get("spec"), pod.get("status")
    if not isinstance(spec, dict) or not isinstance(status, dict) or not spec.get("nodeName"):
        return False
    asks = any("/" in name for name in limited_resources(spec))
    restarts = any(place.restarted for place in containers_of(pod))
    return asks and (restarts or status.get("phase") == "Failed")
