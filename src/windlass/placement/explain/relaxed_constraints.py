"""Looser conditions on where pods may run: a toleration, another GPU model, one selector less, a wider level.

`changes` tries them, each kind in the order in which it comes here. Nothing is given up but a wish, so such a change
counts as small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from windlass.model.node import Taint
from windlass.model.pod import Toleration
from windlass.model.reasons import WHY_GPU_MODEL, WHY_NODE_AFFINITY, WHY_TAINT
from windlass.model.taints import HARD_EFFECTS, tolerates
from windlass.model.topology import LEVEL_BANDWIDTH_GB_PER_S, level_name
from windlass.model.verdict import Change
from windlass.model.workload import TopologyRequest, Workload
from windlass.placement.explain import request_variants as ask
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.limits import GPU_PRODUCT_LABEL
from windlass.queueing.outcome import FLAVOR_MISMATCH

Variant = tuple[Change, Workload]
MAX_VARIANTS = 4
"""Of each kind."""
TOLERATION, MODEL, SELECTOR, TOPOLOGY = 1, 20, 30, 50
"""How much each kind counts for as a loss, in thousandths of the request; a level more counts again."""
CONDITION_TAINT_PREFIX = "node.kubernetes.io/"
"""Taints that Kubernetes puts on nodes which are not well: nobody should tolerate those to get a GPU."""


def relaxed_variants(held: HeldWorkload, index: int) -> Iterator[Iterator[Variant]]:
    """The kinds of conditions that bear on this hold."""
    why = (
        np.bitwise_or.reduce(held.feasibility(index).reasons)
        if len(held.feasibility(index).reasons)
        else np.uint64(0)
    )
    wrong_flavor = held.verdict.code == FLAVOR_MISMATCH
    if int(why) & WHY_TAINT or wrong_flavor:
        yield _tolerations(held, index)
    if int(why) & (WHY_GPU_MODEL | WHY_NODE_AFFINITY) or wrong_flavor:
        yield _models(held, index)
        yield _selectors(held, index)
    if held.piece.pod_sets[index].topology is not None:
        yield _topologies(held, index)


def _tolerations(case: HeldWorkload, index: int) -> Iterator[Variant]:
    """For the taints of nodes that refuse for them, the most frequent set first."""
    one = case.piece.pod_sets[index]
    for taints in _untolerated(case, index)[:MAX_VARIANTS]:
        more = tuple(
            Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)
            for taint in taints
        )
        full = " and ".join(
            f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}" for taint in taints
        )
        keys = " and ".join(dict.fromkeys(taint.key for taint in taints))
        change = Change(
            "toleration",
            f"with a toleration for {full}",
            one.name,
            after=full,
            loss=TOLERATION * len(taints),
            public_text=f"with a toleration for the taint {keys}",
        )
        yield change, ask.with_pod(case.piece, index, ask.with_tolerations(one.template, more))


def _untolerated(case: HeldWorkload, index: int) -> list[tuple[Taint, ...]]:
    tolerations = case.pod_sets[index].pod.spec.tolerations
    counts: dict[tuple[Taint, ...], int] = {}
    facts, why = case.state.overlay.snapshot.nodes, case.feasibility(index).reasons
    for node in np.flatnonzero(why & np.uint64(WHY_TAINT)).tolist():
        _count_taints(facts.taint_sets[int(facts.taint_set_codes[node])], tolerations, counts)
    for flavor in case.state.occupancy.system.flavors.values() if case.piece.queue_name else ():
        _count_taints(flavor.node_taints, tolerations, counts)
    return sorted(counts, key=lambda taints: (-counts[taints], len(taints), [one.key for one in taints]))


def _count_taints(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], counts: dict[tuple[Taint, ...], int]
) -> None:
    hard = tuple(one for one in taints if one.effect in HARD_EFFECTS and not tolerates(tolerations, one))
    if hard and not any(one.key.startswith(CONDITION_TAINT_PREFIX) for one in hard):
        counts[hard] = counts.get(hard, 0) + 1


def _models(case: HeldWorkload, index: int) -> Iterator[Variant]:
    """Other GPU models that the cluster has, the most frequent first."""
    one, gpu = case.piece.pod_sets[index], case.pod_sets[index].shape.gpu
    facts = case.state.overlay.snapshot.nodes
    pinned = one.template.spec.node_selector.get(GPU_PRODUCT_LABEL)
    if pinned is not None:
        for product in _frequent(node.labels.get(GPU_PRODUCT_LABEL, "") for node in facts.objects):
            if product != pinned:
                yield (
                    _model(one.name, pinned, product),
                    ask.with_pod(
                        case.piece, index, ask.with_selector(one.template, GPU_PRODUCT_LABEL, product)
                    ),
                )
    elif gpu is not None and gpu.models:
        devices = case.state.overlay.state.device_info[:, 0].tolist()
        names = case.state.overlay.snapshot.gpu_models.names
        for model in _frequent(names[code] for code in devices if code >= 0):
            if model not in gpu.models:
                before = " or ".join(dict.fromkeys(gpu.models))
                yield (
                    _model(one.name, before, model),
                    ask.with_pod(case.piece, index, ask.with_models(one.template, model)),
                )


def _model(name: str, before: str, after: str) -> Change:
    return Change("model", f"with the GPU model {after} instead of {before}", name, before, after, MODEL)


def _frequent(values: Iterator[str]) -> list[str]:
    counts: dict[str, int] = {}
    for value in values:
        if value:
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))[:MAX_VARIANTS]


def _selectors(case: HeldWorkload, index: int) -> Iterator[Variant]:
    one = case.piece.pod_sets[index]
    for key, value in sorted(one.template.spec.node_selector.items())[:MAX_VARIANTS]:
        change = Change(
            "selector", f"without the node selector {key}={value}", one.name, f"{key}={value}", "", SELECTOR
        )
        yield change, ask.with_pod(case.piece, index, ask.with_selector(one.template, key, None))


def _topologies(case: HeldWorkload, index: int) -> Iterator[Variant]:
    """The next wider levels, then only a wish for the level."""
    one = case.piece.pod_sets[index]
    wanted = one.topology
    if (
        wanted is None
        or wanted.mode != "required"
        or case.tree is None
        or wanted.level not in case.tree.levels
    ):
        return
    at = case.tree.levels.index(wanted.level)
    for steps, level in enumerate(reversed(case.tree.levels[:at]), start=1):
        text = f"with {_named(level)} instead of {_named(wanted.level)} as the required topology"
        change = Change("topology", text, one.name, wanted.level, level, TOPOLOGY * steps)
        yield change, ask.with_topology(case.piece, index, _at(wanted, level))
    text = f"with {_named(wanted.level)} as a preferred topology instead of a required one"
    change = Change("topology", text, one.name, "required", "preferred", TOPOLOGY * (at + 1))
    yield change, ask.with_topology(case.piece, index, _preferring(wanted))


def _at(wanted: TopologyRequest, level: str) -> TopologyRequest:
    return ask.replace(wanted, level=level)


def _preferring(wanted: TopologyRequest) -> TopologyRequest:
    return ask.replace(wanted, mode="preferred")


def _named(level: str) -> str:
    """With its bandwidth, where that is known: it is what the change costs."""
    speed = LEVEL_BANDWIDTH_GB_PER_S.get(level)
    return f"the {level_name(level)}" + (f" ({speed} GB/s)" if speed else "")
