"""The metrics that the exporter computes itself: counts over a window, health in DCGM's words, links to peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.machines import machine

from windlass.node.backend.protocol import Fault
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.exporter.collect import collect_families
from windlass.node.exporter.collection_context import CollectionContext
from windlass.node.exporter.counters import read_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.gpu_health import WATCHES
from windlass.node.exporter.prometheus_text import Sample
from windlass.node.exporter.recent import RecentEvents
from windlass.node.health import HealthTracker
from windlass.node.health_journal import HealthJournal, write_journal
from windlass.node.health_rules import HealthRules
from windlass.node.host_root import HostRoot


def samples(backend: SimulatedBackend, view: CollectionContext | None, counter: str) -> dict[str, list[Sample]]:
    families = collect_families(backend, read_counters(counter)[0], view or CollectionContext())
    return {family.name: list(family.samples) for family in families}


HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health."
PEERS = "DCGM_EXP_P2P_STATUS, gauge, Links."


class TestHealthStatus:
    def status(self, backend: SimulatedBackend, **ailments: list[str]) -> dict[str, dict[str, tuple[float, str]]]:
        """By GPU and watch: the value and the error code."""
        gpus = backend.inventory().gpus
        named = {gpus[int(name[3:])].uuid: kinds for name, kinds in ailments.items()}
        found: dict[str, dict[str, tuple[float, str]]] = {}
        for sample in samples(backend, CollectionContext(problem_kinds=named), HEALTH)["DCGM_EXP_GPU_HEALTH_STATUS"]:
            labels = sample.labels
            by_watch = found.setdefault(labels["gpu"], {})
            by_watch[labels["health_watch"]] = (sample.value, labels["health_error_code"])
        return found

    def test_every_watch_of_every_gpu_passes_where_nothing_is_wrong(self) -> None:
        found = self.status(machine(count=2))
        assert set(found) == {"0", "1"}
        for watches in found.values():
            assert list(watches) == list(WATCHES)
            assert set(watches.values()) == {(0, "DCGM_FR_OK")}

    @pytest.mark.parametrize(
        ("kind", "watch", "value", "code"),
        [
            ("ecc", "MEM", 20, "DCGM_FR_VOLATILE_DBE_DETECTED"),
            ("remap-pending", "MEM", 20, "DCGM_FR_PENDING_ROW_REMAP"),
            ("heat", "THERMAL", 10, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
            ("power", "POWER", 10, "DCGM_FR_CLOCK_THROTTLE_POWER"),
            ("lost-links", "NVLINK", 20, "DCGM_FR_NVLINK_DOWN"),
            ("pcie", "PCIE", 20, "DCGM_FR_PCI_REPLAY_RATE"),
            ("recovery-2", "ALL", 20, "DCGM_FR_GPU_RECOVERY_REBOOT"),
            ("xid-79", "ALL", 20, "DCGM_FR_FALLEN_OFF_BUS"),
            ("xid-95", "ALL", 20, "DCGM_FR_UNCONTAINED_ERROR"),
            ("xid-62", "ALL", 20, "DCGM_FR_XID_ERROR"),
            ("xid-74", "NVLINK", 20, "DCGM_FR_NVLINK_ERROR_CRITICAL"),
            ("never-heard-of", "ALL", 20, "DCGM_FR_UNKNOWN"),
        ],
    )
    def test_an_ailment_is_an_incident_of_its_watch(self, kind: str, watch: str, value: int, code: str) -> None:
        found = self.status(machine(count=2), gpu1=[kind])
        assert found["1"].pop(watch) == (value, code)
        assert {value for watches in found.values() for value in watches.values()} == {(0, "DCGM_FR_OK")}

    def test_the_worst_of_a_watch_counts_and_the_gate_does_not(self) -> None:
        found = self.status(machine(count=1), gpu0=["gate", "remap-pending", "heat"])
        assert (found["0"]["MEM"][0], found["0"]["THERMAL"][0], found["0"]["ALL"][0]) == (20, 10, 0)

    def test_an_instance_speaks_through_its_gpu(self) -> None:
        backend = machine("H200", 1, mig=("1g.18gb",) * 2)
        uuid = backend.inventory().gpus[0].instances[1].uuid
        found = samples(backend, CollectionContext(problem_kinds={uuid: ["xid-95"]}), HEALTH)[
            "DCGM_EXP_GPU_HEALTH_STATUS"
        ]
        assert len(found) == len(WATCHES)
        assert {item.value for item in found} == {0, 20}

    def test_what_the_plugin_found_out_is_what_is_exported(self, tmp_path: Path) -> None:
        """From the book of health through the journal to the page."""
        backend = machine(count=2)
        found = backend.inventory()
        book = HealthTracker(HealthRules(throttled_seconds=0), lambda: 0.0)
        book.on_faults([Fault(uuid=found.gpus[1].uuid, xid=79)], found)
        book.on_reading(found.gpus[1], {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0xC0, "WINDLASS_GPU_RECOVERY_ACTION": 1})
        write_journal(
            tmp_path / "health.json", HealthJournal(unhealthy=book.unhealthy(), ailments=book.problem_kinds())
        )
        exporter = Exporter(
            backend,
            read_counters(HEALTH)[0],
            hostname="n1",
            root=HostRoot(tmp_path),
            journal=tmp_path / "health.json",
        )
        exporter.collect()
        lines = [
            line for line in exporter.metrics_text.decode().splitlines() if "HEALTH_STATUS{" in line and line[-1] != "0"
        ]
        assert not lines, "every value ends in a zero"
        wrong = [line for line in exporter.metrics_text.decode().splitlines() if line.endswith((" 10", " 20"))]
        assert sorted(line.partition('health_watch="')[2].partition('"')[0] for line in wrong) == [
            "ALL",
            "POWER",
            "THERMAL",
        ]
        assert all('gpu="1"' in line for line in wrong)


class TestPeers:
    def status(self, backend: SimulatedBackend) -> dict[tuple[str, str], tuple[float, str]]:
        return {
            (item.labels["gpu"], item.labels["peer_gpu"]): (item.value, item.labels["link_status"])
            for item in samples(backend, None, PEERS)["DCGM_EXP_P2P_STATUS"]
        }

    def test_behind_a_switch_everybody_reaches_everybody(self) -> None:
        found = self.status(machine("H100", 8))
        assert len(found) == 56
        assert set(found.values()) == {(0, "OK")}

    def test_islands_do_not_reach_each_other(self) -> None:
        found = self.status(machine("H100", 4, islands=2))
        assert found["0", "1"] == found["3", "2"] == (0, "OK")
        assert found["1", "2"] == found["2", "1"] == (5, "NotSupported")

    def test_nobody_reaches_one_that_is_lost(self) -> None:
        backend = machine("H100", 8)
        backend.inject(7, is_lost=True)
        found = self.status(backend)
        assert {found["0", "7"], found["7", "0"]} == {(5, "NotSupported")}
        assert found["0", "1"] == (0, "OK")


class TestWindow:
    def test_what_is_older_than_the_window_is_forgotten(self) -> None:
        now = [0.0]
        recent = RecentEvents(lambda: now[0])
        recent.add("GPU-1", 31)
        now[0] = 200.0
        recent.add("GPU-1", 31)
        recent.add("GPU-2", 13)
        assert recent.counts() == {("GPU-1", 31): 2, ("GPU-2", 13): 1}
        now[0] = 301.0
        assert recent.counts() == {("GPU-1", 31): 1, ("GPU-2", 13): 1}
        now[0] = 501.0
        assert not recent.counts()

    def test_clock_events_are_counted_pass_by_pass(self, tmp_path: Path) -> None:
        backend = machine(count=1)
        counters = read_counters("DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, Clock events.")[0]
        exporter = Exporter(backend, counters, hostname="", root=HostRoot(tmp_path))
        for throttle in (0x4, 0x44, 0x0):
            backend.inject(0, throttle=throttle)
            exporter.collect()
        page = exporter.metrics_text.decode()
        assert 'clock_event="power_cap"} 2' in page
        assert 'clock_event="hw_thermal"} 1' in page
