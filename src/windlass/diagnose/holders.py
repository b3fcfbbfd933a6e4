"""Who has the GPUs that would do: namespace, owner, how many, since when.

Fed by `why` with the nodes that could be the place; printed under the diagnosis.
"""

from __future__ import annotations

from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Holder
from windlass.diagnose.schedule import Scheduling
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests


def gpu_holders(evidence: Evidence, seen: Scheduling, now: int) -> tuple[Holder, ...]:
    """The owners of pods on the candidates, those with the most first."""
    held: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    for candidate in seen.candidates:
        for item in evidence.pods_on(candidate.node.name):
            amount = _amount(item, seen)
            if amount:
                key = (item.namespace, _owner(evidence, item))
                held.setdefault(key, []).append((amount, item.created, candidate.node.name))
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


def _amount(item: Item, seen: Scheduling) -> int:
    pod = item.value
    if not isinstance(pod, Pod) or pod.is_over:
        return 0
    try:
        requests = pod_requests(pod)
    except InputError:
        return 0
    return sum(requests.get(name, 0) for name in seen.devices)


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
