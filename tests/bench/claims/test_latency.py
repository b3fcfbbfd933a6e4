"""Queues in front of shared GPUs: conservation, order, and what the simplest cases come to by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.simulate.interference import MEASURED_MODEL, MPS, TIME_SLICING
from windlass_bench.claims.latency import (
    exclusive_completion_times,
    mig_completion_times,
    shared_completion_times,
)
from windlass_bench.claims.services import (
    BURST_S,
    CYCLE_S,
    REQUEST_S,
    Service,
    draw_services,
    request_times,
)

times = st.lists(st.floats(0, 20), max_size=12).map(lambda found: np.array(sorted(found)))
gpus = st.lists(times, min_size=1, max_size=5)
shared = st.sampled_from((TIME_SLICING, MPS))


def reference(way: str, tenants: list[np.ndarray], work: float) -> list[list[float]]:
    """The same queues, moved forward from event to event with every request's own remaining work."""
    coming = sorted((float(at), tenant) for tenant, found in enumerate(tenants) for at in found)
    queues: list[list[float]] = [[] for _ in tenants]
    left = [0.0] * len(tenants)
    done: list[list[float]] = [[] for _ in tenants]
    now = 0.0
    while coming or any(queues):
        active = [tenant for tenant, queue in enumerate(queues) if queue]
        rate = 1 / MEASURED_MODEL.slowdown(way, len(active)) if active else 0.0
        first = min(active, key=lambda tenant: left[tenant], default=None)
        end = now + left[first] / rate if first is not None else float("inf")
        step_to = min(end, coming[0][0] if coming else float("inf"))
        for tenant in active:
            left[tenant] -= (step_to - now) * rate
        now = step_to
        if first is not None and end <= step_to:
            queues[first].pop(0)
            done[first].append(now)
            left[first] = work
        else:
            at, tenant = coming.pop(0)
            if not queues[tenant]:
                left[tenant] = work
            queues[tenant].append(at)
    return done


class TestAlone:
    def test_by_hand(self) -> None:
        """The second waits for the first, the third finds nobody."""
        done = exclusive_completion_times(np.array([0.0, 0.5, 5.0]), work=1.0)
        assert done.tolist() == [1.0, 2.0, 6.0]

    @given(times, st.floats(1, 4))
    def test_first_come_first_served_without_pause(self, arrivals: np.ndarray, slowdown: float) -> None:
        done, step = exclusive_completion_times(arrivals, slowdown, 1.0), slowdown
        free = 0.0
        for came, went in zip(arrivals.tolist(), done.tolist(), strict=True):
            free = max(free, came) + step
            assert went == pytest.approx(free)

    def test_a_smaller_instance_takes_longer(self) -> None:
        arrivals = request_times(draw_services(1, 1)[0], 100, 1)
        took = [float((mig_completion_times(arrivals, slices) - arrivals).mean()) for slices in (1, 2, 3, 7)]
        assert took == sorted(took, reverse=True)
        assert took[-1] < took[0] / 2


class TestTogether:
    def test_two_at_once_by_hand(self) -> None:
        """Both begin together, and each takes as long as the model says for two."""
        done = shared_completion_times(MPS, [np.array([0.0]), np.array([0.0])], work=1.0)
        assert [one.tolist() for one in done] == [[pytest.approx(1 + MEASURED_MODEL.contention)]] * 2

    def test_half_a_request_alone_and_the_rest_beside_another(self) -> None:
        first, second = shared_completion_times(MPS, [np.array([0.0]), np.array([0.5])], work=1.0)
        slow = 1 + MEASURED_MODEL.contention
        assert first.tolist() == [pytest.approx(0.5 + 0.5 * slow)]
        assert second.tolist() == [pytest.approx(0.5 + 0.5 * slow + 0.5)]

    @given(shared, gpus)
    def test_as_the_slow_and_obvious_way_of_counting(self, way: str, tenants: list[np.ndarray]) -> None:
        quick, slow = shared_completion_times(way, tenants, work=1.0), reference(way, tenants, 1.0)
        assert [one.tolist() for one in quick] == [pytest.approx(one) for one in slow]

    @given(shared, times)
    def test_a_tenant_without_neighbours_is_alone(self, way: str, arrivals: np.ndarray) -> None:
        assert shared_completion_times(way, [arrivals], work=1.0)[0] == pytest.approx(
            exclusive_completion_times(arrivals, work=1.0)
        )

    @given(shared, gpus)
    def test_nothing_is_done_before_its_own_time(self, way: str, tenants: list[np.ndarray]) -> None:
        for came, went in zip(tenants, shared_completion_times(way, tenants, work=1.0), strict=True):
            assert len(came) == len(went)
            assert (went - came >= 1.0 - 1e-9).all()


class TestServices:
    def test_the_workload_is_what_it_is_said_to_be(self) -> None:
        services = draw_services(400, 42)
        assert {service.memory_gb for service in services} == {10, 20}
        assert min(service.share_milli for service in services) >= 50
        assert max(service.share_milli for service in services) <= 250
        assert 0.55 < sum(service.share_milli for service in services) / 1000 / 100 < 0.65

    def test_a_longer_list_begins_like_a_shorter_one(self) -> None:
        assert draw_services(500, 7)[:400] == draw_services(400, 7)

    def test_twice_the_requests_for_a_tenth_of_the_time(self) -> None:
        service = Service("service-000", 10, 250, "latency", 0.0)
        times = request_times(service, 1000 * CYCLE_S, 3) % CYCLE_S
        in_burst = (times < BURST_S).sum() / BURST_S
        outside = (times >= BURST_S).sum() / (CYCLE_S - BURST_S)
        assert in_burst / outside == pytest.approx(2, rel=0.03)

    def test_requests_add_up_to_the_compute_share(self) -> None:
        service = Service("service-001", 10, 200, "latency", 0.3)
        times = request_times(service, 100 * CYCLE_S, 3)
        assert len(times) * REQUEST_S / (100 * CYCLE_S) == pytest.approx(0.2 * 1.1, rel=1e-3)
        assert times.min() >= 0
        assert times.max() < 100 * CYCLE_S
