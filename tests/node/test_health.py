"""Health: what makes a device unusable, for whom it counts, and what brings it back."""

from __future__ import annotations

import pytest
from tests.sharing.gpus import gpu, inventory

from windlass.node.backend import protocol
from windlass.node.backend.protocol import Fault
from windlass.node.health import HealthTracker
from windlass.node.health_rules import HealthRules, health_rules_from_environment
from windlass.node.xid import Action, lookup_xid

PLAIN = gpu("H100")
LINK_ERRORS = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"
CUT = gpu("H100", cuts=[("1g.10gb", 0), ("1g.10gb", 1)])


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def book(clock: Clock, **rules: object) -> HealthTracker:
    return HealthTracker(HealthRules(**rules), clock)  # type: ignore[arg-type]


class TestXids:
    @pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 92, 94, 154])
    def test_an_applications_own_or_settled_matter_is_not_fatal(self, code: int) -> None:
        assert not lookup_xid(code).is_fatal

    @pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 95, 109, 119, 140, 151])
    def test_what_needs_a_reset_a_reboot_or_support_is(self, code: int) -> None:
        assert lookup_xid(code).is_fatal

    @pytest.mark.parametrize("code", [*range(144, 151), *range(162, 173)])
    def test_what_the_catalogue_mostly_ignores_or_gives_no_action_is_reported_only(self, code: int) -> None:
        assert not lookup_xid(code).is_fatal
        assert "recovery action" in lookup_xid(code).action.value

    def test_a_code_that_nobody_wrote_down_is_serious(self) -> None:
        assert lookup_xid(999).action is Action.CONTACT_SUPPORT
        assert lookup_xid(999).is_fatal

    def test_a_gpu_wide_fault_counts_for_the_gpu(self, clock: Clock) -> None:
        health = book(clock)
        health.on_faults([Fault(uuid=CUT.uuid, xid=79)], inventory(CUT))
        assert set(health.unhealthy()) == {CUT.uuid}

    def test_what_would_help_is_known_beside_the_reason(self, clock: Clock) -> None:
        health = book(clock)
        assert health.actions() == {}
        for code in (79, 95, 48):
            health.on_faults([Fault(uuid=PLAIN.uuid, xid=code)], inventory(PLAIN))
        wanted = dict.fromkeys(lookup_xid(code).action.value for code in (79, 95, 48))
        assert health.actions() == {PLAIN.uuid: "; ".join(wanted)}
        assert set(health.actions()) == set(health.unhealthy())

    def test_an_instances_fault_counts_for_the_instance(self, clock: Clock) -> None:
        health = book(clock)
        health.on_faults([Fault(uuid=CUT.uuid, xid=95, gpu_instance=2)], inventory(CUT))
        assert set(health.unhealthy()) == {CUT.instances[1].uuid}

    def test_a_fault_of_nobody_counts_for_all(self, clock: Clock) -> None:
        health = book(clock)
        health.on_faults([Fault(uuid="", xid=79)], inventory(PLAIN, gpu("H100", 1)))
        assert len(health.unhealthy()) == 2

    def test_the_change_says_reason_and_action(self, clock: Clock) -> None:
        health = book(clock)
        health.on_faults([Fault(uuid=PLAIN.uuid, xid=48)], inventory(PLAIN))
        (change,) = health.drain_changes()
        assert not change.healthy
        assert "Xid 48: double-bit ECC error" in change.reason
        assert "reset" in change.action
        assert health.drain_changes() == ()

    def test_the_originals_variables_are_obeyed(self, clock: Clock) -> None:
        health = HealthTracker(health_rules_from_environment({"DP_DISABLE_HEALTHCHECKS": "48, 79"}), clock)
        health.on_faults([Fault(uuid=PLAIN.uuid, xid=48)], inventory(PLAIN))
        assert not health.unhealthy()


class TestReadings:
    @pytest.mark.parametrize(
        ("reading", "word"),
        [
            ({protocol.RECOVERY_ACTION: 1}, "recovery action 1"),
            ({protocol.ROW_REMAP_PENDING: 1}, "waits to be remapped"),
            ({protocol.ROW_REMAP_FAILURE: 1}, "could not be remapped"),
            ({protocol.LINKS_DOWN: 2}, "2 NVLinks"),
        ],
    )
    def test_what_one_reading_shows_ends_with_its_cause(
        self, clock: Clock, reading: dict[str, float], word: str
    ) -> None:
        health = book(clock)
        health.on_reading(PLAIN, reading)
        assert word in health.unhealthy()[PLAIN.uuid]
        health.on_reading(PLAIN, {"DCGM_FI_DEV_GPU_TEMP": 40})
        assert word in health.unhealthy()[PLAIN.uuid], "a value that is missing once says nothing"
        health.on_reading(PLAIN, dict.fromkeys(reading, 0))
        assert not health.unhealthy()

    @pytest.mark.parametrize(
        "counter",
        ["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", LINK_ERRORS],
    )
    def test_a_counter_that_is_missing_from_one_reading_has_not_grown(self, clock: Clock, counter: str) -> None:
        health = book(clock)
        for reading in ({counter: 9000}, {"DCGM_FI_DEV_GPU_TEMP": 40}, {counter: 9000}):
            health.on_reading(PLAIN, reading)
            clock.now += 5
        assert not health.unhealthy()
        health.on_reading(PLAIN, {"DCGM_FI_DEV_GPU_TEMP": 40})
        clock.now += 5
        health.on_reading(PLAIN, {counter: 99_000})
        assert health.unhealthy(), "and growth across the gap is seen"

    def test_a_value_that_stays_away_ends_its_problem(self, clock: Clock) -> None:
        """MIG mode hides some of them."""
        health = book(clock, unread_seconds=60)
        health.on_reading(PLAIN, {protocol.ROW_REMAP_PENDING: 1})
        for seconds, is_ill in ((5, True), (59, True), (1, False)):
            clock.now += seconds
            health.on_reading(PLAIN, {"DCGM_FI_DEV_GPU_TEMP": 40})
            assert bool(health.unhealthy()) is is_ill

    def test_the_drivers_own_thermal_slowdown_is_no_fault(self, clock: Clock) -> None:
        """How a passively cooled T4 or L4 works under load."""
        health = book(clock, throttled_seconds=60)
        for _ in range(3):
            health.on_reading(PLAIN, {protocol.THROTTLE_REASONS: 0x20})
            clock.now += 60
        assert not health.unhealthy()

    def test_being_slow_counts_only_when_it_lasts(self, clock: Clock) -> None:
        health = book(clock, throttled_seconds=60)
        hot = {protocol.THROTTLE_REASONS: 0x40}
        health.on_reading(PLAIN, hot)
        clock.now += 59
        health.on_reading(PLAIN, hot)
        assert not health.unhealthy()
        clock.now += 1
        health.on_reading(PLAIN, hot)
        assert "heat" in health.unhealthy()[PLAIN.uuid]
        health.on_reading(PLAIN, {protocol.THROTTLE_REASONS: 0x4})
        assert not health.unhealthy(), "a power cap is how GPUs work"

    def test_replays_may_grow_slowly(self, clock: Clock) -> None:
        health = book(clock, replays_per_minute=600)
        for replays in (0, 100, 200):
            health.on_reading(PLAIN, {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER": replays})
            clock.now += 60
        assert not health.unhealthy()
        health.on_reading(PLAIN, {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 9000})
        assert "PCIe" in health.unhealthy()[PLAIN.uuid]

    def test_a_new_double_bit_error_counts_and_an_old_one_does_not(self, clock: Clock) -> None:
        health = book(clock)
        errors = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
        health.on_reading(PLAIN, {errors: 3})
        clock.now += 5
        health.on_reading(PLAIN, {errors: 3})
        assert not health.unhealthy()
        clock.now += 5
        health.on_reading(PLAIN, {errors: 4})
        assert "double-bit" in health.unhealthy()[PLAIN.uuid]

    def test_links_that_were_up_and_went_down(self, clock: Clock) -> None:
        health = book(clock)
        health.on_inventory(inventory(gpu("H100", switch_links=18)))
        assert not health.unhealthy()
        health.on_inventory(inventory(gpu("H100", switch_links=16)))
        assert "2 of 18 NVLinks went down" in health.unhealthy()[PLAIN.uuid]
        health.on_inventory(inventory(gpu("H100", switch_links=18)))
        assert not health.unhealthy()


class TestRecovery:
    def test_after_quiet_time_and_a_passed_validation(self, clock: Clock) -> None:
        health = book(clock, quiet_seconds=30)
        health.on_faults([Fault(uuid=PLAIN.uuid, xid=48)], inventory(PLAIN))
        assert not health.is_ready_for_validation(PLAIN)
        clock.now += 31
        assert health.is_ready_for_validation(PLAIN)
        health.on_validated(PLAIN, ["computation: wrong"])
        assert "computation: wrong" in health.unhealthy()[PLAIN.uuid]
        health.on_validated(PLAIN, [])
        assert not health.unhealthy()
        assert health.drain_changes()[-1].healthy

    def test_not_while_the_driver_asks_for_a_reset(self, clock: Clock) -> None:
        health = book(clock, quiet_seconds=0)
        health.on_faults([Fault(uuid=PLAIN.uuid, xid=48)], inventory(PLAIN))
        health.on_reading(PLAIN, {protocol.RECOVERY_ACTION: 1})
        assert not health.is_ready_for_validation(PLAIN)
        health.on_reading(PLAIN, {protocol.RECOVERY_ACTION: 0})
        assert health.is_ready_for_validation(PLAIN)

    def test_a_lost_gpu_that_is_back_is_validated_first(self, clock: Clock) -> None:
        health = book(clock, quiet_seconds=0)
        health.on_inventory(inventory(gpu("H100", is_lost=True)))
        assert "lost" in health.unhealthy()[PLAIN.uuid]
        health.on_inventory(inventory(PLAIN))
        assert "not validated" in health.unhealthy()[PLAIN.uuid]
        assert health.is_ready_for_validation(PLAIN)

    def test_an_instance_that_is_gone_is_forgotten(self, clock: Clock) -> None:
        health = book(clock)
        health.on_faults([Fault(uuid=CUT.uuid, xid=95, gpu_instance=2)], inventory(CUT))
        health.on_inventory(inventory(gpu("H100", cuts=[("1g.10gb", 0)])))
        assert not health.unhealthy()
