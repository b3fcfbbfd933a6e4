"""Which pods start together or not at all: groups by name, with the number of members they wait for.

The store numbers them as pods come; `queueing.order` makes units of them. A group is written as Kueue writes it:
label `kueue.x-k8s.io/pod-group-name`, annotation `kueue.x-k8s.io/pod-group-total-count`.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.pods import ALONE
from windlass.model.pod import Pod

GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
TOTAL_ANNOTATION = "kueue.x-k8s.io/pod-group-total-count"
TOPOLOGY = "kueue.x-k8s.io/podset-"
"""How the annotations begin that ask for a topology."""


class Gang(msgspec.Struct, frozen=True, gc=False):
    """A group of pods; `total` of them have to be there before it can start."""

    key: str
    """`namespace/name`."""
    total: int


class GangBook:
    """Group → number; only ever grows. A group that comes again with another total is another one."""

    def __init__(self) -> None:
        self._gangs: list[Gang] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def number_of(self, pod: Pod) -> int:
        name = pod.metadata.labels.get(GROUP_LABEL)
        if not name:
            return ALONE
        key = f"{pod.metadata.namespace or 'default'}/{name}"
        total = _total(pod.metadata.annotations.get(TOTAL_ANNOTATION, ""))
        found = self._numbers.get((key, total))
        if found is None:
            found = self._numbers[key, total] = len(self._gangs)
            self._gangs.append(Gang(key, total))
        return found

    def share(self) -> list[Gang]:
        return self._gangs


def _total(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 1


def asks_to_be_close(pod: Pod) -> bool:
    """Whether it is a member of a gang that says how close together its pods have to be."""
    if GROUP_LABEL not in pod.metadata.labels:
        return False
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    return affinity is not None or any(name.startswith(TOPOLOGY) for name in pod.metadata.annotations)
