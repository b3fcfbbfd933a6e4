"""The GPUs of one node as the page draws them: what each can be, and who is on it.

Called by `web.nodes` with a Node object and its pods; `web/src/model.ts` reads the resulting JSON. If a pod's devices
are unknown (Kubernetes only counts MIG slices and renamed shares), it is drawn on the first free one, always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.model.convert import convert
from windlass.model.device import Device, node_devices, node_replicas
from windlass.model.errors import InputError
from windlass.model.gpu_models import mig_geometry_of_model
from windlass.model.mig import place_layout, profile_of_resource
from windlass.model.names.nvidia import GPU_REPLICAS_LABEL, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.names.windlass import SIMULATED_MIG_INSTANCES_ANNOTATION
from windlass.model.node import Node
from windlass.model.requests import node_quantities
from windlass.model.unstructured import Unstructured
from windlass.web.pods import PodRecord

WHOLE_MILLI = 1000


def gpu_views(tree: Mapping[str, Any], pods: Iterable[PodRecord]) -> list[Unstructured]:
    """One entry per GPU, by index; empty if the node has none or is invalid."""
    try:
        node = convert(tree, Node)
        assert isinstance(node, Node)
        capacity, allocatable = node_quantities(node)
        devices = node_devices(node, allocatable, capacity)
        replicas = node_replicas(node)
    except InputError:
        return []
    views = [_empty(device) for device in devices]
    static = [view for view, device in zip(views, devices, strict=True) if device.mig == "static"]
    _add_mig_parts(static, devices, capacity, node.metadata.annotations.get(SIMULATED_MIG_INSTANCES_ANNOTATION, ""))
    shares = capacity.get(SHARED_GPU_RESOURCE, 0)
    if shares and static:
        each = int(node.labels.get(GPU_REPLICAS_LABEL) or 0) or -(-shares // len(static))
        for view in static:
            view.update(mode="shared", slots=each)
    elif replicas > 1:
        for view in views:
            view.update(mode="shared", slots=replicas)
    for pod in sorted(pods, key=lambda pod: (pod.started, pod.key)):
        _draw_pod(views, pod, replicas)
    return views


def extract_common_fields(views: list[Unstructured]) -> Unstructured:
    """Moves model and memory that all GPUs share out of the entries, to make the document smaller."""
    if not views:
        return {}
    common: Unstructured = {"model": views[0]["model"], "mem": views[0]["mem"]}
    for view in views:
        if view["model"] == common["model"] and view["mem"] == common["mem"]:
            del view["model"], view["mem"]
    return common


def _empty(device: Device) -> Unstructured:
    view: Unstructured = {"i": device.index, "model": device.model, "mem": device.memory_mib, "uses": []}
    if not device.healthy:
        view["ill"] = True
    if device.mig == "dynamic":
        view.update(mode="mig", slices=_slices(device), parts=[])
    return view


def _slices(device: Device) -> int:
    geometry = mig_geometry_of_model(device.model, device.memory_mib)
    return geometry.memory_slices if geometry else 8


def _add_mig_parts(
    static: list[Unstructured], devices: tuple[Device, ...], capacity: Mapping[str, int], known: str
) -> None:
    """The static MIG layout from the node's annotation, else as if all its GPUs were partitioned alike."""
    names = [name for name in capacity if name.startswith(MIG_RESOURCE_PREFIX) and capacity[name]]
    if not names or not static:
        return
    alike: list[str] = []
    for name in sorted(names):
        alike += [profile_of_resource(name)] * (capacity[name] // len(static))
    for view in static:
        own_profiles = [part.partition(":")[2] for part in known.split(",") if part.startswith(f"{view['i']}:")]
        profiles = own_profiles if known else alike
        device = devices[view["i"]]
        geometry = mig_geometry_of_model(device.model, device.memory_mib)
        placed = place_layout(geometry, profiles) if geometry else None
        if geometry is None or placed is None:
            continue
        sizes = {profile.name: profile.memory_slices for profile in geometry.profiles}
        parts = [{"profile": name, "start": start, "size": sizes[name]} for name, start in placed]
        view.update(mode="mig", slices=geometry.memory_slices, parts=parts)


def _draw_pod(views: list[Unstructured], pod: PodRecord, replicas: int) -> None:
    if pod.profile:
        _use_mig_slices(views, pod)
    elif pod.shared:
        _use_shares(views, pod)
    elif pod.gpus:
        _use_gpus(views, pod, replicas)


def _use_gpus(views: list[Unstructured], pod: PodRecord, replicas: int) -> None:
    milli = WHOLE_MILLI // replicas if replicas > 1 else pod.milli
    known = [index for index in pod.devices if index < len(views)]
    for index in known[: pod.gpus]:
        _use(views[index], pod, milli)
    for _ in range(pod.gpus - len(known[: pod.gpus])):
        fitting = [view for view in views if view.get("mode") != "mig" and _left(view) >= milli]
        if not fitting:
            return
        _use(min(fitting, key=lambda view: (bool(view.get("ill")), view["i"])), pod, milli)


def _use_shares(views: list[Unstructured], pod: PodRecord) -> None:
    sharing = [view for view in views if view.get("mode") == "shared"]
    known = [view for view in sharing if view["i"] in pod.devices]
    for number in range(pod.gpus):
        free = [view for view in sharing if len(view["uses"]) < view["slots"]]
        view = known[number] if number < len(known) else next(iter(free), None)
        if view is None:
            return
        _use(view, pod, WHOLE_MILLI // view["slots"])


def _use_mig_slices(views: list[Unstructured], pod: PodRecord) -> None:
    wanted = sorted(
        (view for view in views if view.get("mode") == "mig"), key=lambda view: view["i"] not in pod.devices
    )
    for _ in range(pod.gpus):
        free = (
            (view, part)
            for view in wanted
            for part in view["parts"]
            if part["profile"] == pod.profile and "pod" not in part
        )
        found = next(free, None)
        if found is None and wanted and "parts" in wanted[0]:
            part = {"profile": pod.profile, "start": -1, "size": int(pod.profile[0])}
            wanted[0]["parts"].append(part)  # created on demand, for this pod
            found = (wanted[0], part)
        if found is None:
            return
        found[1].update(pod=pod.key, job=pod.group, util=pod.util)
        _use(found[0], pod, WHOLE_MILLI * found[1]["size"] // found[0]["slices"])


def _use(view: Unstructured, pod: PodRecord, milli: int) -> None:
    view["uses"].append({"pod": pod.key, "job": pod.group, "milli": milli, "util": pod.util})


def _left(view: Unstructured) -> int:
    return WHOLE_MILLI - sum(int(use["milli"]) for use in view["uses"])
