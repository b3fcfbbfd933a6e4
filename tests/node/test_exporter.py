"""The exporter: dcgm-exporter's names and labels, pods joined right, no sentinel, one pass per interval."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.node.machines import machine

from windlass.model.errors import InputError
from windlass.node.backend import nvml_reading
from windlass.node.backend.protocol import Fault, ProcessUsage
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.exporter.collect import collect_families
from windlass.node.exporter.collection_context import CollectionContext, DeviceHolder
from windlass.node.exporter.counters import Counter, default_counters, read_counters
from windlass.node.exporter.counters_file import CountersFile
from windlass.node.exporter.derived_metrics import DERIVED_METRICS
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.fields import DESCRIPTION_FIELDS, FIELD_ALIASES, LINK_FIELDS, READING_FIELDS, reading_name
from windlass.node.exporter.metrics_server import MetricsServer
from windlass.node.exporter.pod_resources import PodResources, holders_from_response
from windlass.node.exporter.prometheus_text import Family, Sample, write_text
from windlass.node.health_journal import HealthJournal, write_journal
from windlass.node.host_root import HostRoot
from windlass.node.plugin.rpc import pod_resources_handler
from windlass.node.protos import podresources_pb2 as pr

ECC = [f"DCGM_FI_DEV_ECC_{error_type}_{span}_TOTAL" for error_type in ("SBE", "DBE") for span in ("VOL", "AGG")]
XID = "DCGM_FI_DEV_XID_ERRORS"
SENTINELS = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328.0)


def samples(
    backend: SimulatedBackend, view: CollectionContext | None = None, extra: str = ""
) -> dict[str, list[Sample]]:
    counters = (*default_counters(), *read_counters(extra)[0])
    return {
        family.name: list(family.samples) for family in collect_families(backend, counters, view or CollectionContext())
    }


class TestNames:
    def test_the_default_set_is_the_originals(self) -> None:
        counters = default_counters()
        assert len(counters) == 26
        assert sum(counter.type == "label" for counter in counters) == 1

    def test_labels_keep_their_names_and_order(self) -> None:
        sample = samples(machine(count=1), CollectionContext(hostname="n1"))["DCGM_FI_DEV_GPU_TEMP"][0]
        assert list(sample.labels) == [
            "gpu",
            "UUID",
            "pci_bus_id",
            "device",
            "modelName",
            "Hostname",
            "DCGM_FI_DRIVER_VERSION",
        ]
        assert sample.labels["device"] == "nvidia0"
        assert sample.labels["pci_bus_id"] == "00000000:18:00.0"

    def test_instances_have_theirs(self) -> None:
        found = samples(machine("H200", 1, mig=("1g.18gb", "3g.71gb")))["DCGM_FI_DEV_FB_FREE"]
        profiles = {item.labels.get("GPU_I_PROFILE") for item in found}
        assert profiles == {"1g.18gb", "3g.71gb"}
        assert len({item.labels["UUID"] for item in found}) == 1, "of the GPU, as in the original"

    def test_instances_carry_what_the_board_has_and_there_is_no_series_of_the_gpu(self) -> None:
        """So power has a pod, and a sum of memory counts nothing twice."""
        backend = machine("H200", 1, mig=("1g.18gb", "3g.71gb"))
        gpu = backend.inventory().gpus[0]
        backend.inject(0, processes=[ProcessUsage(pid=1, memory_mib=1000, gpu_instance=gpu.instances[0].gpu_instance)])
        holder = DeviceHolder("train", "lab", "main")
        found = samples(backend, CollectionContext(holders={gpu.instances[0].uuid: [holder]}))
        board = backend.reading(gpu.uuid)
        for name in ("POWER_USAGE", "GPU_TEMP", "SM_CLOCK", "TOTAL_ENERGY_CONSUMPTION", "PCIE_REPLAY_COUNTER"):
            rows = found[f"DCGM_FI_DEV_{name}"]
            assert [row.labels["GPU_I_ID"] for row in rows] == [str(each.gpu_instance) for each in gpu.instances]
            assert rows[0].labels["pod"] == "train"
        assert found["DCGM_FI_DEV_GPU_TEMP"][1].value == board["DCGM_FI_DEV_GPU_TEMP"]
        assert sum(row.value for row in found["DCGM_FI_DEV_FB_USED"]) == 1000

    def test_a_gpu_in_mig_mode_without_instances_is_itself(self) -> None:
        backend = machine("H200", 1)
        backend.set_mig_mode(backend.inventory().gpus[0].uuid, True)
        (row,) = samples(backend)["DCGM_FI_DEV_POWER_USAGE"]
        assert "GPU_I_ID" not in row.labels

    def test_xids_stand_at_the_instance_that_had_them(self) -> None:
        backend = machine("H200", 1, mig=("1g.18gb", "3g.71gb"))
        gpu = backend.inventory().gpus[0]
        first = gpu.instances[0].gpu_instance
        faults = {(gpu.uuid, first): Fault(uuid=gpu.uuid, xid=31, gpu_instance=first)}
        assert [row.value for row in samples(backend, CollectionContext(last_faults=faults))[XID]] == [31, 0]
        faults[gpu.uuid, -1] = Fault(uuid=gpu.uuid, xid=79)
        assert [row.value for row in samples(backend, CollectionContext(last_faults=faults))[XID]] == [79, 79]

    def test_what_mig_mode_does_not_give_is_absent(self) -> None:
        found = samples(machine("H200", 1, mig=("1g.18gb",)))
        assert not found["DCGM_FI_DEV_GPU_UTIL"]
        assert found["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]

    def test_profiling_is_absent_before_hopper(self) -> None:
        assert not samples(machine("A100-40", 1))["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
        assert samples(machine("H200", 1))["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]

    def test_no_value_is_a_sentinel(self) -> None:
        for model in ("H200", "A100-40", "T4", "L40S"):
            for found in samples(machine(model, 2)).values():
                assert not [item for item in found if item.value in SENTINELS or item.value < 0]

    def test_a_lost_gpu_is_simply_not_there(self) -> None:
        backend = machine(count=2)
        backend.inject(1, is_lost=True)
        assert [item.labels["gpu"] for item in samples(backend)["DCGM_FI_DEV_GPU_TEMP"]] == ["0"]

    def test_xids(self) -> None:
        backend = machine(count=2)
        uuid = backend.inventory().gpus[1].uuid
        view = CollectionContext(last_faults={(uuid, -1): Fault(uuid=uuid, xid=31)}, recent_xids={(uuid, 31): 3})
        found = samples(backend, view, "DCGM_EXP_XID_ERRORS_COUNT, gauge, Count of Xids.")
        assert [item.value for item in found["DCGM_FI_DEV_XID_ERRORS"]] == [0, 31]
        none, counted = found["DCGM_EXP_XID_ERRORS_COUNT"]
        assert (counted.labels["xid"], counted.value) == ("31", 3)
        assert ("xid" in none.labels, none.value) == (False, 0), "a GPU without any has a plain zero"
        assert counted.labels["window_size_in_ms"] == "300000"

    def test_throttle_reasons_by_name(self) -> None:
        backend = machine(count=1)
        uuid = backend.inventory().gpus[0].uuid
        view = CollectionContext(recent_clock_events={(uuid, 0x4): 2, (uuid, 0x40): 1, ("GPU-other", 0x8): 5})
        found = samples(backend, view, "DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, Clock events.")
        counted = found["DCGM_EXP_CLOCK_EVENTS_COUNT"]
        assert {sample.labels["clock_event"]: sample.value for sample in counted} == {
            "power_cap": 2,
            "hw_thermal": 1,
        }


ALL_OF_THEM = "".join(
    [
        *(
            f"{name}, gauge, Help.\n"
            for name in sorted((*READING_FIELDS, *LINK_FIELDS, *DERIVED_METRICS, *FIELD_ALIASES))
        ),
        *(f"{name}, label, Help.\n" for name in sorted(DESCRIPTION_FIELDS)),
    ]
)


class TestEveryName:
    def test_what_is_offered_is_filled(self) -> None:
        """No name is accepted in a counters file that no GPU could ever give."""
        backend = machine("H200", 8)
        backend.inject(0, is_licensed=True)
        counters, left_out = read_counters(ALL_OF_THEM)
        assert not left_out
        found = {family.name: family for family in collect_families(backend, counters, CollectionContext())}
        assert set(found) == {*READING_FIELDS, *LINK_FIELDS, *DERIVED_METRICS, *FIELD_ALIASES}
        assert [name for name, family in found.items() if not family.samples] == []

    def test_so_are_the_labels(self) -> None:
        counters, _ = read_counters(ALL_OF_THEM)
        (family,) = (
            family
            for family in collect_families(machine(count=1), counters, CollectionContext())
            if family.name.endswith("GPU_TEMP")
        )
        assert family.samples[0].labels.keys() >= DESCRIPTION_FIELDS
        assert family.samples[0].labels["DCGM_FI_DEV_SERIAL"] == "1650024000000"

    def test_nvml_has_a_source_for_every_number(self) -> None:
        """Read off the text of the back end; what the exporter knows by itself needs none."""
        folder = Path(nvml_reading.__file__).parent
        text = "".join(
            (folder / name).read_text() for name in ("nvml_reading.py", "protocol.py", "nvml_description.py")
        )
        text = text.replace('f"DCGM_FI_DEV_ECC_{error_type}_{span}_TOTAL"', " ".join(ECC))
        by_itself = {
            "DCGM_FI_DEV_XID_ERRORS",
            "DCGM_FI_DRIVER_VERSION",
            "DCGM_FI_DEV_NAME",
            "DCGM_FI_DEV_UUID",
        }
        assert [name for name in sorted({*READING_FIELDS, *DESCRIPTION_FIELDS} - by_itself) if name not in text] == []

    def test_a_label_that_nobody_asked_for_costs_nothing(self) -> None:
        class Deaf:
            def __init__(self, backend: SimulatedBackend) -> None:
                self.inventory, self.reading = backend.inventory, backend.reading

        assert collect_families(Deaf(machine(count=1)), default_counters(), CollectionContext())  # type: ignore[arg-type]

    def test_links_are_read_only_where_the_file_names_one(self) -> None:
        """Two values a link and pass: not for those who want the total."""
        backend = machine("H200", 8)
        (total,) = samples(backend)["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"][:1]
        found = samples(backend, extra="DCGM_FI_DEV_NVLINK_BANDWIDTH_L17, counter, b")
        assert len(found["DCGM_FI_DEV_NVLINK_BANDWIDTH_L17"]) == 8
        assert found["DCGM_FI_DEV_NVLINK_BANDWIDTH_L17"][0].value * 18 <= total.value + 4e6 * 60
        assert not samples(machine("T4", 1), extra="DCGM_FI_DEV_NVLINK_BANDWIDTH_L0, counter, b")[
            "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0"
        ]

    def test_the_node_can_be_called_as_in_newer_versions(self) -> None:
        view = CollectionContext(hostname="n1", hostname_label="hostname")
        labels = samples(machine(count=1), view)["DCGM_FI_DEV_GPU_TEMP"][0].labels
        assert (labels.get("hostname"), "Hostname" in labels) == ("n1", False)


class TestCountersFile:
    def test_comments_and_blank_lines_are_passed_over(self) -> None:
        counters, _ = read_counters("# a\n\nDCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n")
        assert counters == (Counter("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature."),)

    def test_what_windlass_can_not_measure_is_left_out_aloud(self) -> None:
        counters, left_out = read_counters("DCGM_FI_DEV_VIRTUAL_MODE, gauge, Mode.\n")
        assert not counters
        assert left_out == ["DCGM_FI_DEV_VIRTUAL_MODE"]

    def test_a_help_text_may_have_commas_between_quotation_marks(self) -> None:
        (counter,), _ = read_counters('DCGM_FI_DEV_GPU_TEMP, gauge, "Temperature, in C."\n')
        assert counter.help == "Temperature, in C."

    def test_words_can_only_be_labels_and_numbers_only_metrics(self) -> None:
        text = "DCGM_FI_DEV_SERIAL, gauge, Serial.\nDCGM_FI_DEV_GPU_TEMP, label, Temperature.\n"
        assert read_counters(text) == ((), ["DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_GPU_TEMP"])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("DCGM_FI_DEV_GPU_TEMP, gauge", "2 fields"),
            ("DCGM_FI_DEV_GPU_TEMP, gauge, a, b", "4 fields"),
            ("DCGM_FI_DEV_GPU_TEMP, meter, help", "unknown type"),
            ("GPU_TEMP, gauge, help", "unknown field"),
            ("DCGM_EXP_XID_ERRORS_COUNTXXX, gauge, help", "DCGM_EXP_XID_ERRORS_COUNT"),
            ("DCGM_EXP_GPU_HEALTH_STATUS, label, help", "unknown field"),
        ],
    )
    def test_a_wrong_line_is_refused_with_its_number(self, text: str, words: str) -> None:
        with pytest.raises(InputError, match=words) as refused:
            read_counters(f"# first\n{text}\n", "counters.csv")
        assert (refused.value.file, refused.value.line) == ("counters.csv", 2)

    @given(st.text(max_size=200))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            read_counters(text)
        except InputError:
            return


class TestPods:
    def answer(self, *pods: tuple[str, str, list[str]]) -> pr.ListPodResourcesResponse:
        answer = pr.ListPodResourcesResponse()
        for name, resource, ids in pods:
            container = answer.pod_resources.add(name=name, namespace="team").containers.add(name="main")
            container.devices.add(resource_name=resource, device_ids=ids)
        return answer

    @pytest.mark.parametrize(
        ("resource", "device", "behind"),
        [
            ("nvidia.com/gpu", "GPU-1", "GPU-1"),
            ("nvidia.com/gpu.shared", "GPU-1::2", "GPU-1"),
            ("nvidia.com/mig-1g.10gb", "MIG-1", "MIG-1"),
            ("nvidia.com/mig-1g.10gb.shared", "MIG-1::0", "MIG-1"),
        ],
    )
    def test_every_kind_of_resource_joins(self, resource: str, device: str, behind: str) -> None:
        found = holders_from_response(self.answer(("p", resource, [device])), {})
        assert found == {behind: [DeviceHolder("p", "team", "main")]}

    def test_other_peoples_devices_do_not(self) -> None:
        assert holders_from_response(self.answer(("p", "intel.com/nic", ["GPU-1"])), {}) == {}

    def test_over_the_kubelets_socket(self, tmp_path: Path) -> None:
        answer = self.answer(("p", "nvidia.com/gpu", ["GPU-1"]))
        server = grpc.server(ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((pod_resources_handler(lambda: answer),))
        server.add_insecure_port(f"unix:{tmp_path / 'kubelet.sock'}")
        server.start()
        asked = PodResources(tmp_path / "kubelet.sock")
        assert asked.holders({("team", "p"): "u"}) == {"GPU-1": [DeviceHolder("p", "team", "main", "u")]}
        server.stop(0).wait()
        assert asked.holders() == {}, "no kubelet, no join, no failure"


def test_what_is_wrong_is_told_with_what_to_do(tmp_path: Path) -> None:
    journal = HealthJournal(unhealthy={"GPU-1": "Xid 79"}, actions={"GPU-1": "reboot the node"})
    write_journal(tmp_path / "health.json", journal)
    exporter = Exporter(machine(count=1), (), hostname="n", root=HostRoot(tmp_path), journal=tmp_path / "health.json")
    exporter.collect()
    line = 'windlass_device_unhealthy{UUID="GPU-1",reason="Xid 79",action="reboot the node"} 1'
    assert line in exporter.metrics_text.decode().splitlines()


class TestFollowingTheCountersFile:
    TEMPERATURE, POWER = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"

    def exporter(self, tmp_path: Path) -> tuple[Path, Exporter, list[str]]:
        log: list[str] = []
        file = tmp_path / "counters.csv"
        file.write_text(self.TEMPERATURE)
        counters = CountersFile(file, log.append)
        return (
            file,
            Exporter(machine(count=1), counters.reload_if_changed, hostname="n", root=HostRoot(tmp_path)),
            log,
        )

    def metrics(self, exporter: Exporter) -> set[str]:
        exporter.collect()
        return {
            line.split()[2] for line in exporter.metrics_text.decode().splitlines() if line.startswith("# TYPE DCGM")
        }

    def test_a_change_is_followed(self, tmp_path: Path) -> None:
        file, exporter, log = self.exporter(tmp_path)
        assert self.metrics(exporter) == {"DCGM_FI_DEV_GPU_TEMP"}
        file.write_text(self.POWER)
        assert self.metrics(exporter) == {"DCGM_FI_DEV_POWER_USAGE"}
        assert log == ["the counters file has changed and is in force"]

    @pytest.mark.parametrize("text", ["DCGM_FI_DEV_GPU_TEMP, gauge\n", "NOBODYS, gauge, x\n", "\0" * 200_000 + ","])
    def test_a_mistake_leaves_the_last_good_ones(self, tmp_path: Path, text: str) -> None:
        file, exporter, log = self.exporter(tmp_path)
        file.write_text(text)
        for _ in range(3):
            assert self.metrics(exporter) == {"DCGM_FI_DEV_GPU_TEMP"}
        (line,) = log
        assert f"the last good counters stay in force: {file}:1:" in line
        file.unlink()
        assert self.metrics(exporter) == {"DCGM_FI_DEV_GPU_TEMP"}

    def test_a_name_that_stands_there_twice_is_one_metric(self, tmp_path: Path) -> None:
        file, exporter, _ = self.exporter(tmp_path)
        file.write_text(self.TEMPERATURE + self.POWER + self.TEMPERATURE)
        exporter.collect()
        assert exporter.metrics_text.count(b"# TYPE DCGM_FI_DEV_GPU_TEMP") == 1
        assert exporter.metrics_text.count(b"\nDCGM_FI_DEV_GPU_TEMP{") == 1


@st.composite
def families(draw: st.DrawFn) -> list[Family]:
    texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
    values = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**60), 2**60).map(float)
    found = []
    for number in range(draw(st.integers(0, 4))):
        made = [
            Sample(
                {"gpu": str(at), "text": draw(texts) + draw(st.sampled_from(["", '"', "\\", "\n"]))},
                draw(values),
            )
            for at in range(draw(st.integers(0, 3)))
        ]
        found.append(Family(f"DCGM_FI_{number}", "gauge", "help", made))
    return found


@given(families())
def test_prometheus_own_parser_reads_what_is_written(written: list[Family]) -> None:
    read = {family.name: family.samples for family in text_string_to_metric_families(write_text(written))}
    for family in written:
        real = [sample for sample in family.samples if sample.value - sample.value == 0]
        assert [(item.labels, item.value) for item in read.get(family.name, [])] == [
            (dict(sample.labels), sample.value) for sample in real
        ]


class Counting:
    """A back end that counts how often it is asked."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self.backend = backend
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        self.asked += 1
        return getattr(self.backend, name)


@pytest.fixture
def scene() -> Iterator[tuple[Counting, Exporter, MetricsServer]]:
    backend = Counting(machine())
    exporter = Exporter(backend, default_counters(), hostname="n1", root=HostRoot("/nowhere"))  # type: ignore[arg-type]
    server = MetricsServer(exporter, "127.0.0.1", 0)
    server.start()
    yield backend, exporter, server
    server.stop()


def fetch(server: MetricsServer, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


class TestServer:
    def test_before_the_first_pass_it_says_so(self, scene: tuple[Counting, Exporter, MetricsServer]) -> None:
        with pytest.raises(urllib.error.HTTPError) as failed:
            fetch(scene[2])
        assert failed.value.code == 503

    def test_a_scrape_asks_the_hardware_for_nothing(self, scene: tuple[Counting, Exporter, MetricsServer]) -> None:
        backend, exporter, server = scene
        exporter.collect()
        asked = backend.asked
        pages = {fetch(server) for _ in range(20)}
        assert len(pages) == 1
        assert backend.asked == asked
        assert 'DCGM_FI_DEV_GPU_TEMP{gpu="7"' in pages.pop()
        assert fetch(server, "/health") == "OK\n"

    def test_a_second_exporter_on_the_port_refuses(self, scene: tuple[Counting, Exporter, MetricsServer]) -> None:
        _, exporter, server = scene
        with pytest.raises(InputError, match="remove the other exporter"):
            MetricsServer(exporter, "127.0.0.1", server.port).start()


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("dcgm_sm_clock", "DCGM_FI_DEV_SM_CLOCK"),
        ("dcgm_memory_clock", "DCGM_FI_DEV_MEM_CLOCK"),
        ("dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL"),
        ("dcgm_fb_used", "DCGM_FI_DEV_FB_USED"),
        ("dcgm_nvlink_bandwidth_total", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),
        ("dcgm_fi_prof_gr_engine_active", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    ],
)
def test_names_of_the_first_release_are_read(old: str, name: str) -> None:
    """Its counters file still comes with dcgm-exporter, for dashboards of that time: the metric keeps the old name."""
    (counter,), left_out = read_counters(f"{old}, gauge, Help.\n")
    assert (counter.field, reading_name(counter.field), left_out) == (old, name, [])


def test_an_old_name_that_can_not_be_measured_is_left_out() -> None:
    assert read_counters("dcgm_board_paint, gauge, Help.\n") == ((), ["dcgm_board_paint"])
