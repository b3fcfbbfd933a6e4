"""Refuses what the API server would refuse although every field has the right type.

Called by `model.codec` once per decoded object, so that the deciding packages can trust operators, weights and ranges.
Quantities are checked by `model.requests`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from windlass.model.affinity import check_node_affinity, check_node_selector, check_weight
from windlass.model.errors import InputError
from windlass.model.labels import check_selector
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node
from windlass.model.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from windlass.model.taints import check_taints, check_tolerations
from windlass.model.volume import PersistentVolume, StorageClass

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_INT32 = range(-(2**31), 2**31)


def check_pod(pod: Pod) -> None:
    spec = pod.spec
    if not pod.metadata.name and not pod.metadata.generate_name:
        raise InputError("a pod needs a name", path="metadata.name", remedy="add a name or a generateName")
    check_priority(spec.priority, "spec.priority")
    if spec.tolerations:
        check_tolerations(spec.tolerations, "spec.tolerations")
    if spec.affinity is not None:
        _check_affinity(spec.affinity)
    for index, constraint in enumerate(spec.topology_spread_constraints):
        _check_spread(constraint, f"spec.topologySpreadConstraints[{index}]")
    _check_ports(spec.containers, "spec.containers")
    _check_ports(spec.init_containers, "spec.initContainers")


def check_priority(value: int | None, path: str) -> None:
    if value is not None and value not in _INT32:
        raise InputError("priority is out of range", path=path, remedy="use a 32-bit number")


class _PriorityClass(Protocol):
    """Kubernetes' or Kueue's."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def value(self) -> int: ...


def check_priority_class(priority_class: _PriorityClass) -> None:
    if not priority_class.metadata.name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    check_priority(priority_class.value, "value")


def check_node(node: Node) -> None:
    if not node.name:
        raise InputError("a node needs a name", path="metadata.name", remedy="add a name")
    check_taints(node.spec.taints, "spec.taints")


def check_volume(volume: PersistentVolume) -> None:
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        check_node_selector(affinity.required, "spec.nodeAffinity.required")


def check_storage_class(storage_class: StorageClass) -> None:
    _check_choice(storage_class.volume_binding_mode, ("Immediate", "WaitForFirstConsumer"), "volumeBindingMode")


def _check_affinity(affinity: Affinity) -> None:
    check_node_affinity(affinity.node_affinity, "spec.affinity.nodeAffinity")
    for name, terms in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if terms is not None:
            _check_pod_affinity(terms, f"spec.affinity.{name}")


def _check_pod_affinity(affinity: PodAffinity, path: str) -> None:
    for index, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        _check_pod_term(term, f"{path}.{_REQUIRED}[{index}]")
    for index, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = f"{path}.{_PREFERRED}[{index}]"
        check_weight(weighted.weight, where)
        _check_pod_term(weighted.pod_affinity_term, f"{where}.podAffinityTerm")


def _check_pod_term(term: PodAffinityTerm, path: str) -> None:
    _check_topology_key(term.topology_key, path)
    check_selector(term.label_selector, f"{path}.labelSelector")
    check_selector(term.namespace_selector, f"{path}.namespaceSelector")


def _check_spread(constraint: TopologySpreadConstraint, path: str) -> None:
    _check_topology_key(constraint.topology_key, path)
    check_selector(constraint.label_selector, f"{path}.labelSelector")
    _check_positive(constraint.max_skew, f"{path}.maxSkew")
    hard = constraint.when_unsatisfiable
    _check_choice(hard, ("DoNotSchedule", "ScheduleAnyway"), f"{path}.whenUnsatisfiable")
    _check_choice(constraint.node_affinity_policy, ("Honor", "Ignore"), f"{path}.nodeAffinityPolicy")
    _check_choice(constraint.node_taints_policy, ("Honor", "Ignore"), f"{path}.nodeTaintsPolicy")
    if constraint.min_domains is not None:
        _check_positive(constraint.min_domains, f"{path}.minDomains")
        if hard != "DoNotSchedule":
            raise InputError(
                f"minDomains can't be used with {hard}", path=f"{path}.minDomains", remedy="use DoNotSchedule"
            )


def _check_ports(containers: Sequence[Container], path: str) -> None:
    for index, container in enumerate(containers):
        for position, port in enumerate(container.ports):
            if not 0 <= port.host_port <= 65535:
                raise InputError(
                    f"host port {port.host_port} is out of range",
                    path=f"{path}[{index}].ports[{position}].hostPort",
                    remedy="use 1 to 65535",
                )
            _check_choice(port.protocol, _PROTOCOLS, f"{path}[{index}].ports[{position}].protocol")


def _check_topology_key(key: str, path: str) -> None:
    if not key:
        raise InputError(
            "topologyKey must not be empty",
            path=f"{path}.topologyKey",
            remedy="name a node label such as kubernetes.io/hostname",
        )


def _check_choice(value: str, known: Collection[str], path: str) -> None:
    if value not in known:
        raise InputError(f"unknown value {value!r}", path=path, remedy=f"use one of {', '.join(known)}")


def _check_positive(value: int, path: str) -> None:
    if not 1 <= value < 2**31:
        raise InputError(f"{value} is out of range", path=path, remedy="use 1 or more")
