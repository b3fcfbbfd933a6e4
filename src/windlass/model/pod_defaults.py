"""What the API server adds to a pod when it is made: a LimitRange's default requests, and what its RuntimeClass says.

`cluster.workloads` applies it to the templates of pods that don't exist yet, so that quota counts, before there are
pods, what they will ask for. Pods that exist have it in their spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.namespace_limits import LimitRange
from windlass.model.pod import Container, Pod, RawQuantity, Toleration
from windlass.model.requests import parse_amount

RUNTIME_CLASS_API_VERSION = "node.k8s.io/v1"


class Overhead(KubeStruct, frozen=True):
    pod_fixed: dict[str, RawQuantity] = msgspec.field(default_factory=dict)


class RuntimeClassScheduling(KubeStruct, frozen=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None


class PodDefaults(msgspec.Struct, frozen=True):
    """Of one namespace."""

    requests: Mapping[str, RawQuantity]
    """Of a container that asks for none."""
    runtime_classes: Mapping[str, RuntimeClass]

    def apply(self, pod: Pod) -> Pod:
        """The pod as the API server would store it; the same pod where nothing is added."""
        spec = pod.spec
        runtime_class = self.runtime_classes.get(spec.runtime_class_name) if spec.runtime_class_name else None
        if self.requests:
            spec = msgspec.structs.replace(
                spec,
                containers=tuple(map(self._with_requests, spec.containers)),
                init_containers=tuple(map(self._with_requests, spec.init_containers)),
            )
        if runtime_class is not None and runtime_class.overhead is not None:
            spec = msgspec.structs.replace(spec, overhead={**runtime_class.overhead.pod_fixed})
        if runtime_class is not None and runtime_class.scheduling is not None:
            scheduling = runtime_class.scheduling
            more = tuple(toleration for toleration in scheduling.tolerations if toleration not in spec.tolerations)
            # Where both select by one label, the pod's own value stays: the API server refuses another one.
            node_selector = {**scheduling.node_selector, **spec.node_selector}
            spec = msgspec.structs.replace(spec, node_selector=node_selector, tolerations=spec.tolerations + more)
        return pod if spec is pod.spec else msgspec.structs.replace(pod, spec=spec)

    def _with_requests(self, container: Container) -> Container:
        resources = container.resources
        missing = {
            name: amount
            for name, amount in self.requests.items()
            if name not in resources.requests and name not in resources.limits
        }
        if not missing:
            return container
        requests = {**resources.requests, **missing}
        return msgspec.structs.replace(container, resources=msgspec.structs.replace(resources, requests=requests))


def pod_defaults(
    namespace: str, ranges: Iterable[LimitRange], runtime_classes: Mapping[str, RuntimeClass]
) -> PodDefaults:
    """`ranges`: of all namespaces. Of several for one resource the first counts, as in the API server."""
    requests: dict[str, RawQuantity] = {}
    for limits in ranges:
        for item in limits.spec.limits if limits.namespace == namespace else ():
            if item.type == "Container":
                # As the API server fills in a LimitRange that it is given; one of a manifest is not filled in yet.
                requests = {**item.min, **item.max, **item.default, **item.default_request, **requests}
    return PodDefaults(requests, runtime_classes)


def check_runtime_class(runtime_class: RuntimeClass) -> None:
    for name, raw in runtime_class.overhead.pod_fixed.items() if runtime_class.overhead is not None else ():
        try:
            parse_amount(name, raw)
        except InputError as error:
            raise error.with_context(path=f"overhead.podFixed.{name}") from None
