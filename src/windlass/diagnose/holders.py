"""Who has the GPUs that would do: namespace, owner, how many, since when.

Fed by `why` with the nodes that could be the place; printed under the diagnosis.
"""

from __future__ import annotations

from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Holder
from windlass.diagnose.fit import Fit
from windlass.diagnose.schedule import Scheduling


def gpu_holders(evidence: Evidence, fit: Fit, seen: Scheduling) -> tuple[Holder, ...]:
    """The owners of pods on the candidates, those with the most first."""
    candidates = {candidate.node.name for candidate in seen.candidates}
    held: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    for key, node, amount in fit.holding(seen.devices):
        namespace, name = key.split("/")
        item = evidence.pods.get((namespace, name))
        if item is not None and node in candidates:
            held.setdefault((namespace, _owner(evidence, item)), []).append((amount, item.created, node))
    found = [
        Holder(
            namespace,
            owner,
            sum(amount for amount, _, _ in parts),
            min(created for _, created, _ in parts),
            tuple(sorted({node for _, _, node in parts})),
        )
        for (namespace, owner), parts in held.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.gpus, one.namespace, one.owner)))


def _owner(evidence: Evidence, item: Item) -> str:
    """The top of its owners, as far as they are known."""
    here = item
    for _ in range(8):
        above = evidence.owner(here)
        if above is None:
            break
        here = above
    if here.owners:
        kind, name, _ = here.owners[0]
        return f"{kind}/{name}"
    return f"{here.kind}/{here.name}"
