"""A workload with another request: the pod template changed in one place, everything else as it was.

`changes` makes them and has them tried. The pods that exist are not touched; nothing here is ever carried out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.gpu import FRACTION, TRACE_MILLI, TRACE_MODELS, WHOLE_GPU
from windlass.model.pod import Container, Pod, PodSpec, Toleration
from windlass.model.requests import format_amount, parse_amount
from windlass.model.workload import PodSet, TopologyRequest, Workload

replace = msgspec.structs.replace


def with_set(workload: Workload, index: int, changed: PodSet) -> Workload:
    sets = list(workload.pod_sets)
    sets[index] = changed
    return replace(workload, pod_sets=tuple(sets))


def with_count(workload: Workload, index: int, count: int) -> Workload:
    one = workload.pod_sets[index]
    least = None if one.min_count is None else min(one.min_count, count)
    return with_set(workload, index, replace(one, count=count, min_count=least))


def with_pod(workload: Workload, index: int, pod: Pod) -> Workload:
    return with_set(workload, index, replace(workload.pod_sets[index], template=pod))


def with_topology(workload: Workload, index: int, topology: TopologyRequest | None) -> Workload:
    return with_set(workload, index, replace(workload.pod_sets[index], topology=topology))


def with_amount(pod: Pod, resource: str, total: int) -> Pod | None:
    """The pod asking for so much in all, less than it does; the container that asks for most gives. None where that
    is not what makes up the request (init containers, requests of the whole pod)."""
    if pod.spec.resources is not None:
        return None
    asked = [_asked(container, resource) for container in pod.spec.containers]
    if not asked or sum(asked) <= total:
        return None
    largest = max(range(len(asked)), key=lambda i: (asked[i], -i))
    rest = total - (sum(asked) - asked[largest])
    if rest < (0 if len(asked) > 1 else 1):
        return None
    containers = list(pod.spec.containers)
    containers[largest] = _with(containers[largest], resource, rest)
    init = tuple(
        _with(one, resource, total) if _asked(one, resource) > total else one
        for one in pod.spec.init_containers
    )
    return _respecified(pod, containers=tuple(containers), init_containers=init)


def with_gpus(pod: Pod, count: int) -> Pod | None:
    return with_amount(pod, WHOLE_GPU, count)


def with_share(pod: Pod, milli: int) -> Pod | None:
    """The pod asking for a smaller share of a GPU, in the way in which it asks."""
    notes = pod.metadata.annotations
    if FRACTION in notes:
        return _annotated(pod, {FRACTION: f"{milli / 1000:g}"})
    if TRACE_MILLI in notes:
        return _annotated(pod, {TRACE_MILLI: str(milli)})
    return None


def with_models(pod: Pod, model: str) -> Pod:
    return _annotated(pod, {TRACE_MODELS: model})


def with_selector(pod: Pod, key: str, value: str | None) -> Pod:
    """Another value of a node selector, or none."""
    selector = {name: text for name, text in pod.spec.node_selector.items() if name != key}
    if value is not None:
        selector[key] = value
    return _respecified(pod, node_selector=selector)


def with_tolerations(pod: Pod, more: tuple[Toleration, ...]) -> Pod:
    return _respecified(pod, tolerations=(*pod.spec.tolerations, *more))


def _respecified(pod: Pod, **fields: object) -> Pod:
    spec: PodSpec = replace(pod.spec, **fields)
    return replace(pod, spec=spec)


def _annotated(pod: Pod, notes: Mapping[str, str]) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, **notes}))


def _asked(container: Container, resource: str) -> int:
    asked = container.resources
    raw = asked.requests.get(resource, asked.limits.get(resource))
    return 0 if raw is None else parse_amount(resource, raw)


def _with(container: Container, resource: str, amount: int) -> Container:
    """Where request and limit are the same, they stay so."""
    asked = container.resources
    text = format_amount(resource, amount)
    both = asked.requests.get(resource, asked.limits.get(resource)) == asked.limits.get(resource)
    requests = {**asked.requests, resource: text}
    limits = {**asked.limits, resource: text} if both and resource in asked.limits else asked.limits
    return replace(container, resources=replace(asked, requests=requests, limits=limits))
