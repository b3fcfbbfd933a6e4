"""What a placement trades, counted on clusters small enough to count by hand, and in the results of whole runs."""

from __future__ import annotations

import msgspec
import pytest

from windlass.cluster.delta import Assume, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.model.decision import DeviceGrant
from windlass.model.fleet import Fleet, FleetGpus, FleetPool, FleetSpec, expand_fleet
from windlass.model.meta import ObjectMeta
from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION
from windlass.model.pod import Pod
from windlass.simulate.interference import MEASURED_MODEL
from windlass.simulate.pod_templates import PodSize, make_template
from windlass.simulate.synthetic import make_synthetic
from windlass.simulate.trace import Trace
from windlass.simulate.trace_run import simulate_trace
from windlass.simulate.tradeoffs import trade_offs


def cluster(*placed: tuple[str, str, tuple[DeviceGrant, ...]], gang: tuple[str, ...] = ()) -> Snapshot:
    """Four nodes of eight GPUs in two racks, with these pods on them; those named in `gang` are one."""
    pool = FleetPool(name="n", count=4, gpus=(FleetGpus(model="H100", count=8),), nodes_per_rack=2)
    store = Store()
    store.apply(Put(node) for node in expand_fleet(Fleet(spec=FleetSpec(pools=(pool,)))))
    for name, node, grants in placed:
        share = grants[0].milli if grants[0].milli < 1000 else 0
        template = make_template(PodSize(gpus=len(grants), gpu_milli=share))
        labels = {KUEUE_POD_GROUP_NAME: "gang"} if name in gang else {}
        annotations = {
            **template.annotations,
            **({POD_GROUP_TOTAL_COUNT_ANNOTATION: str(len(gang))} if labels else {}),
        }
        metadata = ObjectMeta(name=name, labels=labels, annotations=annotations)
        store.apply([Put(Pod(metadata=metadata, spec=template.spec))])
        store.apply([Assume(f"default/{name}", node, grants)])
    return store.snapshot()


def whole(*devices: int) -> tuple[DeviceGrant, ...]:
    return tuple(DeviceGrant(device) for device in devices)


def share(device: int, milli: int) -> tuple[DeviceGrant, ...]:
    return (DeviceGrant(device, milli),)


def test_an_empty_cluster_trades_nothing() -> None:
    found = trade_offs(cluster())
    assert (found.stranded_gpus, found.node_jobs, found.rack_jobs, found.slowdown_p99) == (0, 0, 0, 1)
    assert found.node_gpu_hours is None


def test_free_gpus_beside_somebody_are_stranded() -> None:
    found = trade_offs(cluster(("a", "n-0", whole(0)), ("b", "n-1", whole(*range(8)))))
    assert found.stranded_gpus == 7
    assert found.node_jobs == 1


def test_a_gang_is_one_job_on_each_of_its_nodes() -> None:
    placed = (("g-0", "n-0", whole(0)), ("g-1", "n-2", whole(0)), ("b", "n-0", whole(1)))
    found = trade_offs(cluster(*placed, gang=("g-0", "g-1")))
    assert found.node_jobs == 1.5
    assert found.rack_jobs == 1.5


def test_neighbours_on_a_gpu_slow_each_other_down() -> None:
    found = trade_offs(cluster(("a", "n-0", share(0, 400)), ("b", "n-0", share(0, 400)), ("c", "n-0", share(1, 400))))
    paired = 1 + 0.5 * MEASURED_MODEL.contention
    assert found.shared_gpus == 1
    assert found.slowdown_mean == pytest.approx((2 * paired + 1) / 3)
    assert found.slowdown_p99 == pytest.approx(paired)


def test_a_lost_node_undoes_the_whole_gang() -> None:
    placed = (("g-0", "n-0", whole(0, 1)), ("g-1", "n-1", whole(0, 1)))
    since = {"default/g-0": 0, "default/g-1": 0}
    found = trade_offs(cluster(*placed, gang=("g-0", "g-1")), since, 7200)
    assert found.node_gpu_hours == pytest.approx(4 * 2)


def beginning(name: str, jobs: int) -> Trace:
    trace = make_synthetic(name, seed=1)
    return msgspec.structs.replace(trace, jobs=trace.jobs[:jobs])


def test_a_run_with_times_is_looked_at_when_it_is_fullest() -> None:
    found = simulate_trace(beginning("synthetic/inference", 300), "pack").trade_offs
    assert found is not None
    assert found.node_gpu_hours is not None
    assert found.node_gpu_hours > 0
    assert found.shared_gpus > 0
    assert 1 < found.slowdown_mean <= found.slowdown_p99


def test_a_run_without_times_is_looked_at_when_it_ends() -> None:
    found = simulate_trace(beginning("synthetic/small", 200), "pack").trade_offs
    assert found is not None
    assert found.node_jobs > 1
    assert found.node_gpu_hours is None


def test_packing_strands_less_and_spreading_loses_fewer_jobs_with_a_node() -> None:
    trace = beginning("synthetic/training", 100)
    pack, spread = (simulate_trace(trace, policy).trade_offs for policy in ("pack", "spread"))
    assert pack is not None
    assert spread is not None
    assert pack.stranded_gpus < spread.stranded_gpus
    assert pack.node_jobs >= spread.node_jobs
