"""Requests with looser conditions on where pods may run: one more toleration, another GPU model, one node selector
less, a wider topology level.

`changes` tries them in this order. They give up no resources, so they count as small changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from windlass.model.names.kubernetes import NODE_TAINT_PREFIX
from windlass.model.names.nvidia import GPU_PRODUCT_LABEL
from windlass.model.node import Taint
from windlass.model.notices import NODE_NOTICE_TAINTS
from windlass.model.pod import Toleration
from windlass.model.reasons import WHY_GPU_MODEL, WHY_NODE_AFFINITY, WHY_TAINT
from windlass.model.taints import HARD_EFFECTS, tolerates
from windlass.model.topology import LEVEL_BANDWIDTH_GB_PER_S, level_name
from windlass.model.verdict import Change
from windlass.model.workload import Workload
from windlass.placement.explain import request_variants as variants
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.queueing.outcome import FLAVOR_MISMATCH

Variant = tuple[Change, Workload]
MAX_VARIANTS = 4
"""Variants of each kind that are tried."""
TOLERATION, MODEL, SELECTOR, TOPOLOGY = 1, 20, 30, 50
"""Loss of each kind in thousandths of the request; topology counts it once for each level that it goes up."""


def relaxed_variants(held: HeldWorkload, index: int) -> Iterator[Iterator[Variant]]:
    """One iterator for each kind of condition that concerns this hold."""
    by_node = held.feasibility(index).reasons
    reasons = int(np.bitwise_or.reduce(by_node)) if len(by_node) else 0
    wrong_flavor = held.verdict.code == FLAVOR_MISMATCH
    if reasons & WHY_TAINT or wrong_flavor:
        yield _tolerations(held, index)
    if reasons & (WHY_GPU_MODEL | WHY_NODE_AFFINITY) or wrong_flavor:
        yield _models(held, index)
        yield _selectors(held, index)
    if held.piece.pod_sets[index].topology is not None:
        yield _topologies(held, index)


def _tolerations(held: HeldWorkload, index: int) -> Iterator[Variant]:
    """Tolerations for the taints of nodes and flavors that refuse it, the most frequent set of taints first."""
    pod_set = held.piece.pod_sets[index]
    for taints in _untolerated(held, index)[:MAX_VARIANTS]:
        tolerations = tuple(
            Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect) for taint in taints
        )
        full = " and ".join(f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}" for taint in taints)
        keys = " and ".join(dict.fromkeys(taint.key for taint in taints))
        change = Change(
            "toleration",
            f"with a toleration for {full}",
            pod_set.name,
            after=full,
            loss=TOLERATION * len(taints),
            public_text=f"with a toleration for the taint {keys}",
        )
        pod = variants.with_tolerations(pod_set.template, tolerations)
        yield change, variants.with_pod(held.piece, index, pod)


def _untolerated(held: HeldWorkload, index: int) -> list[tuple[Taint, ...]]:
    tolerations = held.pod_sets[index].pod.spec.tolerations
    counts: dict[tuple[Taint, ...], int] = {}
    columns, reasons = held.state.overlay.snapshot.nodes, held.feasibility(index).reasons
    for node in np.flatnonzero(reasons & np.uint64(WHY_TAINT)).tolist():
        _count_taints(columns.taint_sets[int(columns.taint_set_codes[node])], tolerations, counts)
    for flavor in held.state.occupancy.system.flavors.values() if held.piece.queue_name else ():
        _count_taints(flavor.node_taints, tolerations, counts)
    return sorted(counts, key=lambda taints: (-counts[taints], len(taints), [taint.key for taint in taints]))


def _count_taints(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], counts: dict[tuple[Taint, ...], int]
) -> None:
    untolerated = (taint for taint in taints if not tolerates(tolerations, taint))
    hard = tuple(taint for taint in untolerated if taint.effect in HARD_EFFECTS)
    if hard and not any(taint.key.startswith(NODE_TAINT_PREFIX) or taint.key in NODE_NOTICE_TAINTS for taint in hard):
        counts[hard] = counts.get(hard, 0) + 1


def _models(held: HeldWorkload, index: int) -> Iterator[Variant]:
    """Other GPU models that the cluster has, the most frequent first."""
    pod_set, gpu = held.piece.pod_sets[index], held.pod_sets[index].shape.gpu
    columns = held.state.overlay.snapshot.nodes
    pinned = pod_set.template.spec.node_selector.get(GPU_PRODUCT_LABEL)
    if pinned is not None:
        for product in _frequent(node.labels.get(GPU_PRODUCT_LABEL, "") for node in columns.objects):
            if product != pinned:
                yield (
                    _model(pod_set.name, pinned, product),
                    variants.with_pod(
                        held.piece,
                        index,
                        variants.with_selector(pod_set.template, GPU_PRODUCT_LABEL, product),
                    ),
                )
    elif gpu is not None and gpu.models:
        devices = held.state.overlay.state.device_info[:, 0].tolist()
        names = held.state.overlay.snapshot.gpu_models.names
        for model in _frequent(names[code] for code in devices if code >= 0):
            if model not in gpu.models:
                before = " or ".join(dict.fromkeys(gpu.models))
                yield (
                    _model(pod_set.name, before, model),
                    variants.with_pod(held.piece, index, variants.with_models(pod_set.template, model)),
                )


def _model(name: str, before: str, after: str) -> Change:
    return Change("model", f"with GPU model {after} instead of {before}", name, before, after, MODEL)


def _frequent(values: Iterator[str]) -> list[str]:
    counts: dict[str, int] = {}
    for value in values:
        if value:
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))[:MAX_VARIANTS]


def _selectors(held: HeldWorkload, index: int) -> Iterator[Variant]:
    pod_set = held.piece.pod_sets[index]
    for key, value in sorted(pod_set.template.spec.node_selector.items())[:MAX_VARIANTS]:
        text = f"without the node selector {key}={value}"
        change = Change("selector", text, pod_set.name, f"{key}={value}", "", SELECTOR)
        pod = variants.with_selector(pod_set.template, key, None)
        yield change, variants.with_pod(held.piece, index, pod)


def _topologies(held: HeldWorkload, index: int) -> Iterator[Variant]:
    """The next wider levels as required, then the requested level as preferred."""
    pod_set = held.piece.pod_sets[index]
    requested = pod_set.topology
    if (
        requested is None
        or requested.mode != "required"
        or held.tree is None
        or requested.level not in held.tree.levels
    ):
        return
    depth = held.tree.levels.index(requested.level)
    for steps, level in enumerate(reversed(held.tree.levels[:depth]), start=1):
        text = f"with {_level_text(level)} instead of {_level_text(requested.level)} as the required topology level"
        change = Change("topology", text, pod_set.name, requested.level, level, TOPOLOGY * steps)
        yield change, variants.with_topology(held.piece, index, replace(requested, level=level))
    text = f"with {_level_text(requested.level)} as a preferred instead of a required topology level"
    change = Change("topology", text, pod_set.name, "required", "preferred", TOPOLOGY * (depth + 1))
    yield change, variants.with_topology(held.piece, index, replace(requested, mode="preferred"))


def _level_text(level: str) -> str:
    """The level with its bandwidth where that is known: the bandwidth is what the change costs."""
    speed = LEVEL_BANDWIDTH_GB_PER_S.get(level)
    return f"the {level_name(level)}" + (f" ({speed} GB/s)" if speed else "")
