"""Which admitted workloads lack nodes for pods that they hold quota for."""

from __future__ import annotations

import pytest

from reference.park import pod
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.late_pods import _lacks_nodes


@pytest.mark.parametrize(
    ("kind", "pods", "waiting", "quota", "late"),
    [
        ("Workload", 3, 1, 3, True),
        ("Workload", 3, 1, 2, False),
        ("Workload", 4, 2, 2, False),
        ("Workload", 5, 2, 4, True),
        ("Workload", 3, 0, 3, False),
        ("Workload", 3, 3, 1, True),
        ("Job", 3, 1, 2, True),
    ],
)
def test_pods_above_the_admission_of_a_workload_are_not_late(
    kind: str, pods: int, waiting: int, quota: int, late: bool
) -> None:
    """The owner of an elastic one may have created more pods than it was admitted with."""
    keys = tuple(f"default/p{at}" for at in range(pods))
    pod_set = PodSet("main", pods, pod("t", 1), pod_keys=keys)
    admission = Admission("q", (PodSetAssignment("main", quota, {}, {}),))
    piece = Workload("default/w", kind, (pod_set,), admission=admission)
    assert _lacks_nodes(piece, set(keys[pods - waiting :]) | {"default/other"}) is late
