"""A Job that is changed while it runs or waits: never admitted with the size that it had before."""

from __future__ import annotations

import asyncio

import pytest
from tests.scheduler.queued_jobs import WORKLOADS, QueuedJobs, on_cluster

from windlass.model.unstructured import Unstructured


class Admissions:
    """The sizes with which Workloads were admitted, without repetitions in a row; 0 where one was withdrawn."""

    def __init__(self, cluster: QueuedJobs) -> None:
        self.sizes: list[int] = []
        cluster.client.subscribe(WORKLOADS, self._note)

    def _note(self, kind: str, tree: Unstructured, old: Unstructured | None) -> None:
        admission = (tree.get("status") or {}).get("admission")
        size = admission["podSetAssignments"][0]["count"] if admission else 0
        if self.sizes[-1:] != [size]:
            self.sizes.append(size)


NETWORKS = {"quick": (0.002, 0.0), "slow": (0.3, 0.0), "behind": (0.05, 1.0)}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_job_that_has_outgrown_its_admission_is_admitted_again_only_with_its_new_size(network: str) -> None:
    """`OwnerWorkloadReconciler.awaits_update`: it is stopped, and its Workload written anew, before that."""

    @on_cluster()
    async def test(cluster: QueuedJobs) -> None:
        found = Admissions(cluster)
        cluster.submit("train", 4)
        await asyncio.sleep(10)
        latency, watch_lag = NETWORKS[network]
        cluster.cluster.set_network(latency=latency, failures=0.0, watch_lag=watch_lag, decision_seconds=0.0)
        cluster.resize("train", 6)
        await asyncio.sleep(120)
        assert found.sizes == [0, 4, 0, 6]
        assert cluster.admitted("train") == len(cluster.bound("train")) == cluster.usage() == 6

    test()


@pytest.mark.parametrize("network", ["quick", "slow"])  # behind, the quota may be seen before the change
@pytest.mark.parametrize("size", [3, 8])
def test_a_waiting_job_that_is_changed_as_quota_becomes_free_is_admitted_once(size: int, network: str) -> None:
    @on_cluster()
    async def test(cluster: QueuedJobs) -> None:
        cluster.set_quota(4)
        await asyncio.sleep(5)
        found = Admissions(cluster)
        cluster.submit("train", 6)
        await asyncio.sleep(10)
        latency, watch_lag = NETWORKS[network]
        cluster.cluster.set_network(latency=latency, failures=0.0, watch_lag=watch_lag, decision_seconds=0.0)
        cluster.resize("train", size)
        cluster.set_quota(8)
        await asyncio.sleep(60)
        assert found.sizes == [0, size]
        assert cluster.admitted("train") == len(cluster.bound("train")) == cluster.usage() == size

    test()
