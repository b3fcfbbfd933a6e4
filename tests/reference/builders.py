"""Builders of the Kubernetes objects that tests use."""

from __future__ import annotations

from windlass.model.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from windlass.model.node import Node, NodeSpec, Taint
from windlass.model.pod import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimVolume,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
)

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def make_node(name, *, taints=(), cordoned=False, **labels):
    """Labels by keyword; `zone` and `host` stand for the well-known labels: `zone="a"`, `host="n1"`."""
    return Node(
        metadata=ObjectMeta(name=name, labels=_labels(labels)),
        spec=NodeSpec(taints=tuple(taints), unschedulable=cordoned),
    )


def _labels(labels):
    names = {"zone": ZONE, "host": HOST}
    return {names.get(key, key): value for key, value in labels.items()}


def taint(key, value="", effect="NoSchedule"):
    return Taint(key=key, value=value, effect=effect)


def make_pod(name="pod", *, namespace="default", labels=None, deleting=False, **spec):
    stamp = "2025-01-01T00:00:00Z" if deleting else ""
    meta = ObjectMeta(name=name, namespace=namespace, labels=labels or {}, deletion_timestamp=stamp, uid=name)
    return Pod(metadata=meta, spec=PodSpec(**spec))


def selector(**labels):
    return LabelSelector(match_labels=labels)


def expression(key, operator, *values):
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def need(key, operator, *values):
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def node_term(*needs, fields=()):
    return NodeSelectorTerm(match_expressions=needs, match_fields=fields)


def node_affinity(*terms, preferred=()):
    """Required terms, and preferred ones as (weight, term)."""
    return Affinity(
        node_affinity=NodeAffinity(
            required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=terms)
            if terms
            else None,
            preferred_during_scheduling_ignored_during_execution=tuple(
                PreferredSchedulingTerm(weight=weight, preference=term) for weight, term in preferred
            ),
        )
    )


def near(key, chosen=None, **options):
    return PodAffinityTerm(topology_key=key, label_selector=chosen, **options)


def pod_affinity(*required, preferred=()):
    return Affinity(pod_affinity=_rules(required, preferred))


def pod_anti_affinity(*required, preferred=()):
    return Affinity(pod_anti_affinity=_rules(required, preferred))


def _rules(required, preferred):
    return PodAffinity(
        required_during_scheduling_ignored_during_execution=tuple(required),
        preferred_during_scheduling_ignored_during_execution=tuple(
            WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term) for weight, term in preferred
        ),
    )


def spread(key, chosen, max_skew=1, *, soft=False, **options):
    return TopologySpreadConstraint(
        topology_key=key,
        label_selector=chosen,
        max_skew=max_skew,
        when_unsatisfiable="ScheduleAnyway" if soft else "DoNotSchedule",
        **options,
    )


def with_ports(*ports):
    """Containers for a pod: one, with these ports."""
    return (Container(name="main", ports=tuple(ports)),)


def host_port(number, *, ip="", protocol="TCP"):
    return ContainerPort(container_port=number, host_port=number, host_ip=ip, protocol=protocol)


def claim_volume(name):
    return Volume(name=name, persistent_volume_claim=PersistentVolumeClaimVolume(claim_name=name))
