"""Copies of a workload with one thing changed in its request.

`changes` and `relaxed_constraints` make them for dry runs. The pods that exist are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.names.kai import KAI_FRACTION
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.others import ALIBABA_MILLI, ALIBABA_MODEL
from windlass.model.pod import Container, Pod, PodSpec, Toleration
from windlass.model.requests import format_amount, parse_amount
from windlass.model.workload import PodSet, TopologyRequest, Workload

replace = msgspec.structs.replace


def with_set(workload: Workload, index: int, changed: PodSet) -> Workload:
    pod_sets = list(workload.pod_sets)
    pod_sets[index] = changed
    return replace(workload, pod_sets=tuple(pod_sets))


def with_count(workload: Workload, index: int, count: int) -> Workload:
    pod_set = workload.pod_sets[index]
    least = None if pod_set.min_count is None else min(pod_set.min_count, count)
    return with_set(workload, index, replace(pod_set, count=count, min_count=least))


def with_pod(workload: Workload, index: int, pod: Pod) -> Workload:
    return with_set(workload, index, replace(workload.pod_sets[index], template=pod))


def with_topology(workload: Workload, index: int, topology: TopologyRequest | None) -> Workload:
    return with_set(workload, index, replace(workload.pod_sets[index], topology=topology))


def with_amount(pod: Pod, resource: str, total: int) -> Pod | None:
    """The pod with a smaller total request, taken off the container that requests most. None where containers don't
    determine the total (init containers, requests of the whole pod)."""
    if pod.spec.resources is not None:
        return None
    requested = [_request_of(container, resource) for container in pod.spec.containers]
    if not requested or sum(requested) <= total:
        return None
    largest = max(range(len(requested)), key=lambda i: (requested[i], -i))
    rest = total - (sum(requested) - requested[largest])
    if rest < (0 if len(requested) > 1 else 1):
        return None
    containers = list(pod.spec.containers)
    containers[largest] = _with_request(containers[largest], resource, rest)
    init = tuple(
        _with_request(container, resource, total) if _request_of(container, resource) > total else container
        for container in pod.spec.init_containers
    )
    return _with_spec(pod, containers=tuple(containers), init_containers=init)


def with_gpus(pod: Pod, count: int) -> Pod | None:
    return with_amount(pod, GPU_RESOURCE, count)


def with_share(pod: Pod, milli: int) -> Pod | None:
    """The pod with a smaller share of a GPU, by the annotation that it uses; None where it uses none."""
    annotations = pod.metadata.annotations
    if KAI_FRACTION in annotations:
        return _with_annotations(pod, {KAI_FRACTION: f"{milli / 1000:g}"})
    if ALIBABA_MILLI in annotations:
        return _with_annotations(pod, {ALIBABA_MILLI: str(milli)})
    return None


def with_models(pod: Pod, model: str) -> Pod:
    return _with_annotations(pod, {ALIBABA_MODEL: model})


def with_selector(pod: Pod, key: str, value: str | None) -> Pod:
    """The pod with another value of a node selector, or without the selector where the value is None."""
    selector = {name: text for name, text in pod.spec.node_selector.items() if name != key}
    if value is not None:
        selector[key] = value
    return _with_spec(pod, node_selector=selector)


def with_tolerations(pod: Pod, more: tuple[Toleration, ...]) -> Pod:
    return _with_spec(pod, tolerations=(*pod.spec.tolerations, *more))


def _with_spec(pod: Pod, **fields: object) -> Pod:
    spec: PodSpec = replace(pod.spec, **fields)
    return replace(pod, spec=spec)


def _with_annotations(pod: Pod, annotations: Mapping[str, str]) -> Pod:
    merged = {**pod.metadata.annotations, **annotations}
    return replace(pod, metadata=replace(pod.metadata, annotations=merged))


def _request_of(container: Container, resource: str) -> int:
    resources = container.resources
    raw = resources.requests.get(resource, resources.limits.get(resource))
    return 0 if raw is None else parse_amount(resource, raw)


def _with_request(container: Container, resource: str, amount: int) -> Container:
    """The container with another request; an equal limit changes with it, as extended resources require."""
    resources = container.resources
    text = format_amount(resource, amount)
    same = resources.requests.get(resource, resources.limits.get(resource)) == resources.limits.get(resource)
    requests = {**resources.requests, resource: text}
    follows = same and resource in resources.limits
    limits = {**resources.limits, resource: text} if follows else resources.limits
    return replace(container, resources=replace(resources, requests=requests, limits=limits))
