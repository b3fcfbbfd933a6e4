"""What `windlass stack adopt` finds: the GPUStack that it would make of nodes of NVIDIA's operator, which parts pass to
the node agent and which stay, what is not carried over, and what forbids it.

Pure: `cli.stack_adopt` reads the objects and writes the stack; taking the parts over is the operator's
(`operator.decide.take_over`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.nvidia import (
    DEPLOY_LABEL_PREFIX,
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    MIG_CONFIG_LABEL,
    NVIDIA_PREFIX,
)
from windlass.model.names.windlass import OPERATOR_API_VERSION
from windlass.model.unstructured import Unstructured
from windlass.node.agent_parts import DEPLOY_LABELS
from windlass.operator.decide.gpu_operator import UPGRADE_IS_OVER, UPGRADE_STATE_LABEL, why_not_driven
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL
from windlass.operator.decide.owners import is_agent_pod
from windlass.operator.kinds.base import check_node_count
from windlass.operator.kinds.gpu_stack import TAKEABLE
from windlass.operator.kinds.taken_over import paused_label
from windlass.operator.observed import NodeView, Observed

DRIVER_LABEL = f"{DEPLOY_LABEL_PREFIX}driver"
_SECTIONS = {"plugin": "devicePlugin", "labels": "gfd", "exporter": "dcgmExporter", "mig": "migManager"}
"""Of a ClusterPolicy's spec."""
_OF_THE_IMAGE = frozenset({"enabled", "repository", "image", "version", "imagePullPolicy", "imagePullSecrets"})
"""Fields that say which image NVIDIA's operator runs: the agent has one of its own."""
SHOWN = 4


class Part(msgspec.Struct, frozen=True):
    step: str
    passes: bool
    """Whether the node agent is to do it."""
    message: str


class Adoption(msgspec.Struct, frozen=True):
    stack: Unstructured
    parts: tuple[Part, ...]
    differences: tuple[str, ...]
    """What is not carried over, and in what the nodes differ."""
    obstacles: tuple[str, ...]
    """Why nothing can be done now."""


def survey(
    name: str, selector: Mapping[str, str], take: Sequence[str], observed: Observed, policies: Sequence[Unstructured]
) -> Adoption:
    """`policies`: the ClusterPolicies of NVIDIA's operator, as they are."""
    nodes = [node for node in observed.nodes.values() if selector.items() <= node.labels.items()]
    policy = next((found for found in policies if (found.get("status") or {}).get("state") != "ignored"), {})
    taken = [step for step in TAKEABLE if step in take and any(_runs(node, DEPLOY_LABELS[step]) for node in nodes)]
    spec: Unstructured = {"nodes": {"matchLabels": dict(selector)}, "driver": {"source": _driver_source(nodes)}}
    products, counts = _values(nodes, GPU_PRODUCT_LABEL), _values(nodes, GPU_COUNT_LABEL)
    layouts = _values(nodes, MIG_CONFIG_LABEL)
    spec |= {"sku": sorted(products)} if products else {}
    spec |= {"expect": {"gpus": int(next(iter(counts)))}} if len(counts) == 1 else {}
    spec |= (
        {"mig": {"config": next(iter(layouts))}} if len(layouts) == 1 and sum(layouts.values()) == len(nodes) else {}
    )
    spec |= {"takeOver": taken} if taken else {}
    spec["maxUnavailable"] = _max_unavailable(policy)
    stack = {"apiVersion": OPERATOR_API_VERSION, "kind": "GPUStack", "metadata": {"name": name}, "spec": spec}
    return Adoption(
        stack=stack,
        parts=tuple(_parts(nodes, taken, observed)),
        differences=tuple(_differences(nodes, taken, policy)),
        obstacles=tuple(_obstacles(name, selector, nodes, taken, observed, policies)),
    )


def _runs(node: NodeView, label: str) -> bool:
    return node.labels.get(label) == "true"


def _values(nodes: Iterable[NodeView], label: str) -> Counter[str]:
    return Counter(node.labels[label] for node in nodes if node.labels.get(label))


def _driver_source(nodes: Sequence[NodeView]) -> str:
    found = {node.labels.get(DRIVER_LABEL, "") for node in nodes}
    if found == {"true"}:
        return "gpu-operator"
    return "host" if found <= {"pre-installed", "false", ""} else "auto"


def _max_unavailable(policy: Unstructured) -> int | str:
    upgrades = ((policy.get("spec") or {}).get("driver") or {}).get("upgradePolicy") or {}
    found: Any = upgrades.get("maxUnavailable")
    try:
        check_node_count(found, "driver.upgradePolicy.maxUnavailable", least=1)
    except InputError:
        return "5%"
    return found  # type: ignore[no-any-return]  # checked


def _parts(nodes: Sequence[NodeView], taken: Sequence[str], observed: Observed) -> Iterator[Part]:
    versions = ", ".join(sorted(_values(nodes, DRIVER_VERSION_LABEL))) or "none reported"
    source = _driver_source(nodes)
    if source == "gpu-operator":
        refused = why_not_driven(observed)
        driven = f"a FleetChange can't drive it: {refused}" if refused else "a FleetChange drives it"
        yield Part("driver", False, f"stays with gpu-operator ({versions}); {driven}")
    else:
        yield Part("driver", False, f"stays with the host ({versions})")
    yield Part("runtime", False, "stays as it is")
    for step in TAKEABLE:
        label = DEPLOY_LABELS[step]
        running = sum(_runs(node, label) for node in nodes)
        if step in taken:
            yield Part(step, True, f"passes to the node agent on {running} of {len(nodes)} nodes ({label}=windlass)")
        elif running:
            yield Part(step, False, f"stays with gpu-operator on {running} of {len(nodes)} nodes")
        else:
            yield Part(step, False, "gpu-operator does not do it here")
    yield Part("validator", False, "stays, and the node agent's runs before GPUs are handed out")


def _differences(nodes: Sequence[NodeView], taken: Sequence[str], policy: Unstructured) -> Iterator[str]:
    for label, what in (
        (DRIVER_VERSION_LABEL, "driver versions"),
        (GPU_PRODUCT_LABEL, "GPU models"),
        (GPU_COUNT_LABEL, "numbers of GPUs"),
        (MIG_CONFIG_LABEL, "MIG layouts"),
    ):
        found = _values(nodes, label)
        if len(found) > 1:
            counts = ", ".join(f"{value} on {count}" for value, count in sorted(found.items()))
            yield f"the nodes have several {what}: {counts}"
    spec = policy.get("spec") or {}
    for step in taken:
        section = spec.get(_SECTIONS[step]) or {}
        fields = sorted(key for key, value in section.items() if key not in _OF_THE_IMAGE and value not in ({}, [], ""))
        if fields:
            names = ", ".join(f"{_SECTIONS[step]}.{field}" for field in fields)
            yield f"not carried over from the ClusterPolicy: {names}; see the options of `windlass install node`"
    if ((spec.get("driver") or {}).get("upgradePolicy") or {}).get("autoUpgrade"):
        yield "driver.upgradePolicy.autoUpgrade stays on: an edit of a version there reaches all nodes without waves"


def _obstacles(
    name: str,
    selector: Mapping[str, str],
    nodes: Sequence[NodeView],
    taken: Sequence[str],
    observed: Observed,
    policies: Sequence[Unstructured],
) -> Iterator[str]:
    if not nodes:
        yield f"no node has the labels {', '.join(f'{key}={value}' for key, value in selector.items())}"
        return
    if not any(label.startswith(DEPLOY_LABEL_PREFIX) for node in nodes for label in node.labels):
        yield f"gpu-operator does not look after these nodes: none has a label {DEPLOY_LABEL_PREFIX}…"
    without = [node.name for node in nodes if not any(map(is_agent_pod, observed.pods.get(node.name, ())))]
    if taken and without:
        yield f"no node agent runs on {_names(without)}: windlass install node (beside gpu-operator's parts it waits)"
    lost = sorted(key for key in selector if key.startswith(NVIDIA_PREFIX)) if "labels" in taken else []
    if lost:
        yield f"{lost[0]} is written by a part that passes over: choose the nodes by a label of your own"
    busy = [node.name for node in nodes if node.labels.get(UPGRADE_STATE_LABEL, "") not in UPGRADE_IS_OVER]
    if busy:
        yield f"gpu-operator is upgrading the driver of {_names(busy)}: wait for {UPGRADE_STATE_LABEL}=upgrade-done"
    for node in nodes:
        if paused_label(node.labels):
            yield f"a part of {node.name} is paused ({paused_label(node.labels)}): wait until it is restored"
    for policy in policies:
        if ((policy.get("spec") or {}).get("sandboxWorkloads") or {}).get("enabled"):
            yield "the ClusterPolicy has sandboxWorkloads, whose plugins the node agent doesn't replace"
    for stack in observed.stacks:
        others = dict(stack.spec.nodes.match_labels)
        shared = [node.name for node in nodes if others and others.items() <= node.labels.items()]
        if shared and stack.name != name:
            yield f"GPUStack {stack.name} selects {_names(shared)} already"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
