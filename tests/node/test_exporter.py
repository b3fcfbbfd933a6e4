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
from windlass.node.backend.protocol import Fault, ProcessUse
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.exporter.collect import collect
from windlass.node.exporter.counters import Counter, default_counters, read_counters
from windlass.node.exporter.pods import PodResources, holders_of, pods_of_processes
from windlass.node.exporter.server import Exporter, MetricsServer
from windlass.node.exporter.text import Family, Sample, write_text
from windlass.node.exporter.view import Holder, View
from windlass.node.plugin.rpc import lister_handler
from windlass.node.protos import podresources_pb2 as pr
from windlass.node.root import HostRoot

SENTINELS = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328.0)


def samples(backend: SimulatedBackend, view: View | None = None, extra: str = "") -> dict[str, list[Sample]]:
    counters = (*default_counters(), *read_counters(extra)[0])
    return {family.name: list(family.samples) for family in collect(backend, counters, view or View())}


class TestNames:
    def test_the_default_set_is_the_originals(self) -> None:
        counters = default_counters()
        assert len(counters) == 26
        assert sum(counter.type == "label" for counter in counters) == 1

    def test_labels_keep_their_names_and_order(self) -> None:
        sample = samples(machine(count=1), View(hostname="n1"))["DCGM_FI_DEV_GPU_TEMP"][0]
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
        profiles = {each.labels.get("GPU_I_PROFILE") for each in found}
        assert profiles == {None, "1g.18gb", "3g.71gb"}
        assert len({each.labels["UUID"] for each in found}) == 1, "of the GPU, as in the original"

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
                assert not [each for each in found if each.value in SENTINELS or each.value < 0]

    def test_a_lost_gpu_is_simply_not_there(self) -> None:
        backend = machine(count=2)
        backend.inject(1, is_lost=True)
        assert [each.labels["gpu"] for each in samples(backend)["DCGM_FI_DEV_GPU_TEMP"]] == ["0"]

    def test_xids(self) -> None:
        backend = machine(count=2)
        uuid = backend.inventory().gpus[1].uuid
        view = View(last_faults={uuid: Fault(uuid=uuid, xid=31)}, recent_xids={(uuid, 31): 3})
        found = samples(backend, view, "DCGM_EXP_XID_ERRORS_COUNT, gauge, Count of Xids.")
        assert [each.value for each in found["DCGM_FI_DEV_XID_ERRORS"]] == [0, 31]
        (counted,) = found["DCGM_EXP_XID_ERRORS_COUNT"]
        assert (counted.labels["xid"], counted.value) == ("31", 3)

    def test_throttle_reasons_by_name(self) -> None:
        backend = machine(count=1)
        backend.inject(0, throttle=0x44)
        found = samples(backend, None, "DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, Clock events.")
        assert {each.labels["clock_event"] for each in found["DCGM_EXP_CLOCK_EVENTS_COUNT"]} == {
            "power_cap",
            "hw_thermal",
        }


class TestCountersFile:
    def test_comments_and_blank_lines_are_passed_over(self) -> None:
        counters, _ = read_counters("# a\n\nDCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n")
        assert counters == (Counter("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature."),)

    def test_what_windlass_can_not_measure_is_left_out_aloud(self) -> None:
        counters, left_out = read_counters("DCGM_FI_DEV_VIRTUAL_MODE, gauge, Mode.\n")
        assert not counters
        assert left_out == ["DCGM_FI_DEV_VIRTUAL_MODE"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("DCGM_FI_DEV_GPU_TEMP, gauge", "2 fields"),
            ("DCGM_FI_DEV_GPU_TEMP, gauge, a, b", "4 fields"),
            ("DCGM_FI_DEV_GPU_TEMP, meter, help", "unknown type"),
            ("GPU_TEMP, gauge, help", "unknown field"),
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
        found = holders_of(self.answer(("p", resource, [device])), {})
        assert found == {behind: [Holder("p", "team", "main")]}

    def test_other_peoples_devices_do_not(self) -> None:
        assert holders_of(self.answer(("p", "intel.com/nic", ["GPU-1"])), {}) == {}

    def test_each_pod_of_a_shared_gpu_has_its_own_part(self) -> None:
        backend = machine(count=1)
        used = [
            ProcessUse(pid=7, memory_mib=100, sm_percent=30),
            ProcessUse(pid=8, memory_mib=50, sm_percent=5),
        ]
        backend.inject(0, processes=used)
        uuid = backend.inventory().gpus[0].uuid
        view = View(
            holders={uuid: [Holder("a", "t", "c", "uid-a"), Holder("b", "t", "c", "uid-b")]},
            pods_of_processes={7: "uid-a", 8: "uid-b"},
        )
        found = samples(backend, view)
        assert {each.labels["pod"]: each.value for each in found["DCGM_FI_DEV_FB_USED"]} == {
            "a": 100,
            "b": 50,
        }
        assert {each.labels["pod"]: each.value for each in found["DCGM_FI_DEV_GPU_UTIL"]} == {"a": 30, "b": 5}
        assert len(found["DCGM_FI_DEV_GPU_TEMP"]) == 2, "what can't be told apart is everybody's"

    def test_processes_are_found_by_their_cgroup(self, tmp_path: Path) -> None:
        uid = "0a1b2c3d-0000-1111-2222-333344445555"
        for pid, text in (
            (7, f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-x.scope"),
            (8, f"0::/kubepods/burstable/pod{uid}/abc"),
            (9, "0::/system.slice/sshd.service"),
        ):
            (tmp_path / f"proc/{pid}").mkdir(parents=True)
            (tmp_path / f"proc/{pid}/cgroup").write_text(text)
        assert pods_of_processes(HostRoot(tmp_path), [7, 8, 9, 10]) == {7: uid, 8: uid}

    def test_over_the_kubelets_socket(self, tmp_path: Path) -> None:
        answer = self.answer(("p", "nvidia.com/gpu", ["GPU-1"]))
        server = grpc.server(ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((lister_handler(lambda: answer),))
        server.add_insecure_port(f"unix:{tmp_path / 'kubelet.sock'}")
        server.start()
        asked = PodResources(tmp_path / "kubelet.sock")
        assert asked.holders({("team", "p"): "u"}) == {"GPU-1": [Holder("p", "team", "main", "u")]}
        server.stop(0).wait()
        assert asked.holders() == {}, "no kubelet, no join, no failure"
        asked.close()


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
        real = [each for each in family.samples if each.value - each.value == 0]
        assert [(each.labels, each.value) for each in read.get(family.name, [])] == [
            (dict(each.labels), each.value) for each in real
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

    def test_a_scrape_asks_the_hardware_for_nothing(
        self, scene: tuple[Counting, Exporter, MetricsServer]
    ) -> None:
        backend, exporter, server = scene
        exporter.make_page()
        asked = backend.asked
        pages = {fetch(server) for _ in range(20)}
        assert len(pages) == 1
        assert backend.asked == asked
        assert 'DCGM_FI_DEV_GPU_TEMP{gpu="7"' in pages.pop()
        assert fetch(server, "/health") == "OK\n"

    def test_a_second_exporter_on_the_port_refuses(
        self, scene: tuple[Counting, Exporter, MetricsServer]
    ) -> None:
        _, exporter, server = scene
        with pytest.raises(InputError, match="another exporter is live"):
            MetricsServer(exporter, "127.0.0.1", server.port)
