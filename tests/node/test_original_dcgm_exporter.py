"""The published unit tests of dcgm-exporter (NVIDIA/dcgm-exporter at d5e5f51), case by case.

Read there, written anew: names are the original's, `Test…/case`. Every name of `HOLD` is a test here; `DIFFER` and
`NOT_APPLICABLE` have the reason, the latter by test with the number of its cases, since most of them are about DCGM's
own library. `test_originals` compares the counts with the guide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine

from windlass.model.errors import InputError
from windlass.node.backend.protocol import Fault, ProcessUsage
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.exporter.collect import collect_families
from windlass.node.exporter.collection_context import CollectionContext, DeviceHolder
from windlass.node.exporter.counters import read_counters
from windlass.node.exporter.extra_labels import ExtraLabels, extra_labels_from_environment
from windlass.node.exporter.pod_resources import holders_from_response, physical_device_id, pod_uids_of_processes
from windlass.node.exporter.prometheus_text import Family, Sample, write_text
from windlass.node.exporter.resource_slices import DRIVER, device_uuids
from windlass.node.host_root import HostRoot
from windlass.node.protos import podresources_pb2 as pr

UTILISATION, MEMORY, XIDS = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_EXP_XID_ERRORS_COUNT"
CLOCKS, TEMPERATURE = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_FI_DEV_GPU_TEMP"

LABELS = {
    f"TestShouldIncludeLabel/{name}": (patterns, label, included)
    for name, patterns, label, included in (
        ("NoFiltering_AllLabelsIncluded", (), "any-label", True),
        ("NoFiltering_ComplexLabel", (), "app.kubernetes.io/name", True),
        ("ExactMatch_Included", ("^app$",), "app", True),
        ("ExactMatch_Excluded", ("^app$",), "tier", False),
        ("PrefixMatch_Included", (r"^app\..*",), "app.kubernetes.io/name", True),
        ("PrefixMatch_Excluded", (r"^app\..*",), "tier", False),
        ("MultiplePatterns_FirstMatches", ("^app$", "^tier$"), "app", True),
        ("MultiplePatterns_SecondMatches", ("^app$", "^tier$"), "tier", True),
        ("MultiplePatterns_NoneMatch", ("^app$", "^tier$"), "environment", False),
        ("RegexAlternation_FirstOption", ("^(app|tier|version)$",), "app", True),
        ("RegexAlternation_SecondOption", ("^(app|tier|version)$",), "tier", True),
        ("RegexAlternation_NoMatch", ("^(app|tier|version)$",), "environment", False),
        ("K8sStandardLabels_AppName", (r"^app\.kubernetes\.io/.*",), "app.kubernetes.io/name", True),
        ("K8sStandardLabels_AppVersion", (r"^app\.kubernetes\.io/.*",), "app.kubernetes.io/version", True),
        ("K8sStandardLabels_NonAppLabel", (r"^app\.kubernetes\.io/.*",), "custom-label", False),
        ("FilterHighCardinality_BuildID", ("^app$", "^tier$"), "build-id", False),
        ("FilterHighCardinality_PodTemplateHash", ("^app$", "^tier$"), "pod-template-hash", False),
    )
}


def allowing(*patterns: str) -> ExtraLabels:
    return extra_labels_from_environment(
        {
            "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true",
            "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": ",".join(patterns),
        }
    )


@pytest.mark.parametrize(("patterns", "label", "included"), LABELS.values(), ids=LABELS)
def test_patterns_choose_labels(patterns: tuple[str, ...], label: str, included: bool) -> None:
    assert bool(allowing(*patterns).of_pod({label: "x"})) is included


APP = {"app.kubernetes.io/name": "my-app", "app.kubernetes.io/version": "1.0.0"}
PLAIN = {"app": "nginx", "tier": "frontend"}
PODS: dict[str, tuple[tuple[str, ...], dict[str, str], set[str]]] = {
    f"TestGetPodMetadata_WithLabelFiltering/{name}": case
    for name, case in (
        (
            "NoFiltering_AllLabelsIncluded",
            ((), PLAIN | APP, {"app", "tier", "app_kubernetes_io_name", "app_kubernetes_io_version"}),
        ),
        ("FilterByExactMatch", (("^app$",), PLAIN, {"app"})),
        (
            "FilterByPrefix",
            (
                (r"^app\.kubernetes\.io/.*",),
                PLAIN | APP | {"build-id": "abc123"},
                {"app_kubernetes_io_name", "app_kubernetes_io_version"},
            ),
        ),
        (
            "FilterMultiplePatterns",
            (
                ("^app$", "^tier$", "^environment$"),
                PLAIN | {"environment": "prod", "build-id": "abc123", "pod-template-hash": "xyz789"},
                {"app", "tier", "environment"},
            ),
        ),
        (
            "FilterCommonK8sLabels",
            (
                (r"^app\.kubernetes\.io/.*", "^version$"),
                APP | {"version": "v2", "build-id": "xyz", "controller-revision-hash": "abc"},
                {"app_kubernetes_io_name", "app_kubernetes_io_version", "version"},
            ),
        ),
        ("NoMatchingLabels", (("^nonexistent$",), PLAIN, set())),
    )
}
NAMES = {
    "TestSanitizeLabelName/Sanitize label with invalid characters": (
        "label.with.dots/and-slashes",
        "label_with_dots_and_slashes",
    ),
    "TestSanitizeLabelName/Sanitize label with special characters": (
        "label@with#special!chars",
        "label_with_special_chars",
    ),
    "TestSanitizeLabelName/Sanitize label with valid characters": ("valid_label_123", "valid_label_123"),
}
FILTERS = {
    f"TestNewLabelFilterCache/{name}": patterns
    for name, patterns in (
        ("EmptyPatterns", ()),
        ("NilPatterns", ()),
        ("ValidSinglePattern", ("^app$",)),
        ("ValidMultiplePatterns", ("^app$", "^tier$", "^env-.*")),
        ("ComplexRegexPatterns", (r"^app\.kubernetes\.io/.*", "^(tier|environment)$")),
    )
}


@pytest.mark.parametrize(("patterns", "labels", "names"), PODS.values(), ids=PODS)
def test_labels_of_a_pod(patterns: tuple[str, ...], labels: dict[str, str], names: set[str]) -> None:
    assert set(allowing(*patterns).of_pod(labels)) == names


@pytest.mark.parametrize(("label", "name"), NAMES.values(), ids=NAMES)
def test_labels_get_names_that_prometheus_takes(label: str, name: str) -> None:
    assert allowing().of_pod({label: "x"}) == {name: "x"}


@pytest.mark.parametrize("patterns", FILTERS.values(), ids=FILTERS)
def test_patterns_are_read(patterns: tuple[str, ...]) -> None:
    assert allowing(*patterns).allowed == patterns


@pytest.mark.parametrize("patterns", [("[invalid",), ("^app$", "[invalid", "^tier$")])
def test_a_pattern_that_is_none_is_refused(patterns: tuple[str, ...]) -> None:
    """The two cases of `DIFFER` about patterns."""
    with pytest.raises(InputError, match="POD_LABEL_ALLOWLIST_REGEX"):
        allowing(*patterns)


JOB_FILES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    f"TestGetGPUFiles/{name}": case
    for name, case in (
        ("plain GPU IDs", (("0", "1", "42"), ("0", "1", "42"))),
        ("MIG GPU.instance IDs", (("0.0", "2.1", "3.10"), ("0.0", "2.1", "3.10"))),
        ("mixed valid files", (("0", "1", "2.0", "3.1"), ("0", "1", "2.0", "3.1"))),
        ("rejects non-numeric names", (("foo", "bar.txt", ".gitkeep"), ())),
        ("rejects float-like strings", (("1e5", "NaN", "Inf", "+3", "-2", ".5"), ())),
        ("rejects too many dots", (("1.2.3", "0.1.2"), ())),
        ("mixed valid and invalid", (("0", "NaN", "2.0", "foo", "1e5", "3"), ("0", "2.0", "3"))),
    )
}


@pytest.mark.parametrize(("files", "taken"), JOB_FILES.values(), ids=JOB_FILES)
def test_files_of_jobs(tmp_path: Path, files: tuple[str, ...], taken: tuple[str, ...]) -> None:
    for name in files:
        (tmp_path / name).write_text("job1\n")
    assert sorted(ExtraLabels(hpc_folder=tmp_path).hpc_jobs()) == sorted(taken)


def test_jobs_of_gpus_and_of_instances(tmp_path: Path) -> None:
    """TestHPCProcess, TestHPCName."""
    whole, cut = machine(count=2), machine("H200", 1, mig=("1g.18gb", "3g.71gb"))
    instance = cut.inventory().gpus[0].instances[1]
    (tmp_path / "0").write_text("job1\njob2\n")
    (tmp_path / f"0.{instance.gpu_instance}").write_text("job3\n")
    context = CollectionContext(hpc_jobs=ExtraLabels(hpc_folder=tmp_path).hpc_jobs())
    jobs = [row.labels.get("hpc_job") for row in rows(whole, TEMPERATURE, context)]
    assert jobs == ["job1", "job2", None]
    assert [row.labels.get("hpc_job") for row in rows(cut, TEMPERATURE, context)] == [None, "job3"]


def rows(backend: SimulatedBackend, field: str, context: CollectionContext) -> list[Sample]:
    (family,) = collect_families(backend, read_counters(f"{field}, gauge, h")[0], context)
    return list(family.samples)


UID = "a9c80282-3f6b-4d5b-84d5-a137a6668011"
OTHER = "12345678-1234-1234-1234-123456789012"
SLICES = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"
CGROUPS = {
    "TestExtractPodUID/cgroups v1 besteffort": (f"1:cpu:/kubepods/besteffort/pod{UID}/container123", UID),
    "TestExtractPodUID/cgroups v1 burstable": (f"1:cpu:/kubepods/burstable/pod{OTHER}/abc", OTHER),
    "TestExtractPodUID/cgroups v2 with underscores": (f"0::{SLICES}{UID.replace('-', '_')}.slice", UID),
    "TestExtractPodUID/no pod UID": ("0::/system.slice/docker.service", None),
    "TestExtractPodUID/short UID (invalid)": ("0::/kubepods/pod123/container", None),
    "TestExtractPodUID/empty path": ("0::", None),
    "TestExtractPodUIDFromPaths/found in subsystems": (
        f"4:memory:/kubepods/besteffort/pod{UID}/container\n1:cpu:/kubepods/besteffort/pod{UID}/container\n0::",
        UID,
    ),
    "TestExtractPodUIDFromPaths/found in unified only": (f"0::{SLICES}{OTHER.replace('-', '_')}.slice", OTHER),
    "TestExtractPodUIDFromPaths/not found": ("4:memory:/system.slice/docker.service\n0::/user.slice", None),
    "TestBuildPIDToPodMap": (f"0::/kubepods/besteffort/pod{UID}/container", UID),
}


@pytest.mark.parametrize(("text", "uid"), CGROUPS.values(), ids=CGROUPS)
def test_a_process_leads_to_its_pod(tmp_path: Path, text: str, uid: str | None) -> None:
    (tmp_path / "proc/1001").mkdir(parents=True)
    (tmp_path / "proc/1001/cgroup").write_text(text)
    assert pod_uids_of_processes(HostRoot(tmp_path), [1001, 1002]) == ({1001: uid} if uid else {})


Processes = dict[int, tuple[str, int, int]]
"""PID → pod's UID, SM percent, MiB."""
VALUES: dict[str, tuple[Processes, str, dict[str, float]]] = {
    f"{name}": case
    for name, case in (
        (
            "TestBuildPodValueMap/maps PID values to pod UIDs for GPU util",
            ({1001: ("uid1", 50, 0), 1002: ("uid2", 75, 0)}, UTILISATION, {"uid1": 50, "uid2": 75}),
        ),
        (
            "TestBuildPodValueMap/maps PID values to pod UIDs for FB used",
            ({1001: ("uid1", 0, 1024)}, MEMORY, {"uid1": 1024, "uid2": 0}),
        ),
        (
            "TestBuildPodValueMap/skips PIDs without metric data",
            ({1001: ("uid1", 50, 0), 2002: ("uid2", 0, 0)}, UTILISATION, {"uid1": 50, "uid2": 0}),
        ),
        (
            "TestBuildPodValueMap/multiple PIDs same pod - accumulates GPU util",
            ({1001: ("uid1", 30, 0), 1002: ("uid1", 45, 0)}, UTILISATION, {"uid1": 75, "uid2": 0}),
        ),
        (
            "TestBuildPodValueMap/multiple PIDs same pod - accumulates FB used",
            ({1001: ("uid1", 0, 500), 1002: ("uid1", 0, 300)}, MEMORY, {"uid1": 800, "uid2": 0}),
        ),
        (
            "TestBuildPodValueMap/mixed pods - some with multiple PIDs, some with single PID",
            (
                {1001: ("uid1", 20, 0), 1002: ("uid1", 30, 0), 2001: ("uid2", 50, 0)},
                UTILISATION,
                {"uid1": 50, "uid2": 50},
            ),
        ),
        (
            "TestBuildIdlePodValues/adds zero values for idle pods",
            ({1001: ("uid1", 50, 0)}, UTILISATION, {"uid1": 50, "uid2": 0}),
        ),
        (
            "TestBuildIdlePodValues/skips pods with existing values",
            ({1001: ("uid1", 50, 0), 1002: ("uid2", 75, 0)}, UTILISATION, {"uid1": 50, "uid2": 75}),
        ),
        ("TestBuildIdlePodValues/all pods idle", ({}, UTILISATION, {"uid1": 0, "uid2": 0})),
    )
}


@pytest.mark.parametrize(("processes", "field", "values"), VALUES.values(), ids=VALUES)
def test_pods_have_the_values_of_their_processes(processes: Processes, field: str, values: dict[str, float]) -> None:
    """On a GPU that pods share."""
    backend = machine(count=1)
    uuid = backend.inventory().gpus[0].uuid
    context = CollectionContext(
        holders={uuid: [DeviceHolder(uid, "lab", "main", uid) for uid in ("uid1", "uid2")]},
        processes={
            uuid: [
                ProcessUsage(pid=pid, memory_mib=memory, sm_percent=percent)
                for pid, (_, percent, memory) in processes.items()
            ]
        },
        pods_of_processes={pid: uid for pid, (uid, _, _) in processes.items()},
    )
    assert {row.labels["pod"]: row.value for row in rows(backend, field, context)} == values


IDS = {
    "TestStripVGPUSuffix/MIG device ID with vgpu suffix": ("MIG-2ce7a541::7", "MIG-2ce7a541"),
    "TestStripVGPUSuffix/Plain MIG UUID without suffix": ("MIG-2ce7a541", "MIG-2ce7a541"),
    "TestStripVGPUSuffix/Regular GPU UUID": ("GPU-65759866", "GPU-65759866"),
    "TestStripVGPUSuffix/Non-MIG device ID with vgpu suffix": ("b8ea3855::2", "b8ea3855"),
    "TestStripVGPUSuffix/Empty string": ("", ""),
    "TestStripVGPUSuffix/Device ID with empty suffix": ("MIG-2ce7a541::", "MIG-2ce7a541"),
    "TestGetSharedGPU/nvidia device plugin, non-mig, shared": ("GPU-5a5a7118::3", "GPU-5a5a7118"),
    "TestGetSharedGPU/nvidia device plugin, non-mig, non-shared": ("GPU-5a5a7118", "GPU-5a5a7118"),
    "TestGetSharedGPU/nvidia device plugin, mig, shared": ("MIG-42f0f413::0", "MIG-42f0f413"),
    "TestGetSharedGPU/nvidia device plugin, mig, non-shared": ("MIG-42f0f413", "MIG-42f0f413"),
}


@pytest.mark.parametrize(("name", "uuid"), IDS.values(), ids=IDS)
def test_a_share_leads_to_its_device(name: str, uuid: str) -> None:
    assert physical_device_id(name) == uuid


CLAIMED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "TestPodDRAInfo/uuid-exists": ({"uuid": {"string": "GPU-8a748984"}}, ["GPU-8a748984"]),
    "TestPodDRAInfo/uuid-updated": ({"uuid": {"string": "GPU-UUID-Updated"}}, ["GPU-UUID-Updated"]),
    "TestPodDRAInfo/no-uuid": ({}, []),
}


def claimed(attributes: dict[str, Any]) -> dict[str, list[DeviceHolder]]:
    device = {"name": "gpu-x", "attributes": attributes}
    uuids = device_uuids([{"spec": {"driver": DRIVER, "pool": {"name": "poolA"}, "devices": [device]}}])
    answer = pr.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="p", namespace="ns1").containers.add(name="main")
    claim = container.dynamic_resources.add(claim_name="claim1", claim_namespace="ns1")
    claim.claim_resources.add(driver_name=DRIVER, pool_name="poolA", device_name="gpu-x")
    return holders_from_response(answer, {}, lambda pool, name: uuids.get((pool, name), ""))


@pytest.mark.parametrize(("attributes", "uuids"), CLAIMED.values(), ids=CLAIMED)
def test_claims_lead_to_devices(attributes: dict[str, Any], uuids: list[str]) -> None:
    assert list(claimed(attributes)) == uuids


def test_a_claimed_mig_device_is_itself() -> None:
    """The case of `DIFFER` about claims."""
    assert list(claimed({"uuid": {"string": "MIG-12345"}, "parentUUID": {"string": "GPU-parent"}})) == ["MIG-12345"]


LINES = {
    "TestExtractCounters/Valid Input DCGM_FI_DEV_GPU_TEMP": ("DCGM_FI_DEV_GPU_TEMP, gauge, temperature\n", True),
    "TestExtractCounters/Invalid Input DCGM_EXP_XID_ERRORS_COUNTXXX": (
        "DCGM_EXP_XID_ERRORS_COUNTXXX, gauge, temperature\n",
        False,
    ),
    "TestIdentifyMetricType/Valid Input DCGM_EXP_XID_ERRORS_COUNT": ("DCGM_EXP_XID_ERRORS_COUNT, gauge, x\n", True),
    "TestIdentifyMetricType/Valid Input DCGM_FI_UNKNOWN": ("DCGM_FI_UNKNOWN, gauge, x\n", True),
    "TestIdentifyMetricType/Invalid Input DCGM_EXP_XID_ERRORS_COUNTXXX": (
        "DCGM_EXP_XID_ERRORS_COUNTXXX, gauge, x\n",
        False,
    ),
}


@pytest.mark.parametrize(("line", "valid"), LINES.values(), ids=LINES)
def test_lines_of_the_counters_file(line: str, valid: bool) -> None:
    if valid:
        counters, left_out = read_counters(line)
        assert [counter.field for counter in counters] + left_out == [line.partition(",")[0]]
    else:
        with pytest.raises(InputError, match="unknown field"):
            read_counters(line)


ENABLED = {
    f"{test}/{name}": (field, is_there)
    for test, field in (
        ("TestIsDCGMExpClockEventsCountEnabled", CLOCKS),
        ("TestIsDCGMExpXIDErrorsCountEnabled", XIDS),
        ("TestIsDCGMExpGPUHealthStatusEnabled", "DCGM_EXP_GPU_HEALTH_STATUS"),
        ("TestIsDCGMExpP2PStatusEnabled", "DCGM_EXP_P2P_STATUS"),
    )
    for name, is_there in (("empty", None), ("disabled", False), ("enabled", True))
}


@pytest.mark.parametrize(("field", "is_there"), ENABLED.values(), ids=ENABLED)
def test_a_metric_is_there_if_the_file_names_it(field: str, is_there: bool | None) -> None:
    lines = {None: "", False: f"{TEMPERATURE}, gauge, t", True: f"{TEMPERATURE}, gauge, t\n{field}, gauge, x"}
    found = collect_families(machine(count=2), read_counters(lines[is_there])[0], CollectionContext())
    assert (field in {family.name for family in found}) is bool(is_there)


def test_events_are_counted_by_gpu() -> None:
    """Test_clockEventsCollector_GetMetrics and Test_xidCollector_GetMetrics: single, multiple, and of other GPUs."""
    backend = machine(count=2)
    first, second = (gpu.uuid for gpu in backend.inventory().gpus)
    context = CollectionContext(
        recent_xids={(first, 42): 1, (first, 46): 2, ("GPU-other", 13): 7},
        recent_clock_events={(first, 0x4): 2, (first, 0x40): 1, (second, 0x1): 3, ("GPU-other", 0x8): 5},
    )
    xids = {(row.labels["UUID"], row.labels.get("xid")): row.value for row in rows(backend, XIDS, context)}
    assert xids == {(first, "42"): 1, (first, "46"): 2, (second, None): 0}
    clocks = {(row.labels["UUID"], row.labels["clock_event"]): row.value for row in rows(backend, CLOCKS, context)}
    assert clocks == {(first, "power_cap"): 2, (first, "hw_thermal"): 1, (second, "gpu_idle"): 3}


LAST_XID = {
    "TestToMetricWhenDCGM_FI_DEV_XID_ERRORSField/when DCGM_FI_DEV_XID_ERRORS has no error": 0,
    "TestToMetricWhenDCGM_FI_DEV_XID_ERRORSField/when DCGM_FI_DEV_XID_ERRORS has known value": 42,
    "TestToMetricWhenDCGM_FI_DEV_XID_ERRORSField/when DCGM_FI_DEV_XID_ERRORS has unknown value": 255,
}


@pytest.mark.parametrize("xid", LAST_XID.values(), ids=LAST_XID)
def test_the_last_xid_is_the_value(xid: int) -> None:
    backend = machine(count=1)
    uuid = backend.inventory().gpus[0].uuid
    faults = {(uuid, -1): Fault(uuid=uuid, xid=xid)} if xid else {}
    (row,) = rows(backend, "DCGM_FI_DEV_XID_ERRORS", CollectionContext(last_faults=faults))
    assert row.value == xid


def test_peers_and_text() -> None:
    """TestP2PStatusCollector_GetMetrics, TestP2PStatusToString (OK, NotSupported), Test_render, TestToMetric."""
    statuses = {
        (row.labels["gpu"], row.labels["peer_gpu"]): (row.labels["link_status"], row.value)
        for row in rows(machine("H100", 2), "DCGM_EXP_P2P_STATUS", CollectionContext())
    }
    assert statuses == {("0", "1"): ("OK", 0), ("1", "0"): ("OK", 0)}
    (apart, _) = rows(machine("T4", 2), "DCGM_EXP_P2P_STATUS", CollectionContext())
    assert (apart.labels["link_status"], apart.value) == ("NotSupported", 5)
    labels = {"gpu": "0", "UUID": "GPU-test", "device": "nvidia0", "modelName": "Test GPU", "Hostname": "testhost"}
    text = write_text([Family("TEST_METRIC", "gauge", "Test metric.", [Sample(labels, 42)])])
    assert text == (
        "# HELP TEST_METRIC Test metric.\n# TYPE TEST_METRIC gauge\n"
        'TEST_METRIC{gpu="0",UUID="GPU-test",device="nvidia0",modelName="Test GPU",Hostname="testhost"} 42\n'
    )


WALKS = (
    *("TestHPCProcess", "TestHPCName", "Test_render", "TestToMetric", "TestP2PStatusCollector_GetMetrics"),
    "Test_clockEventsCollector_GetMetrics/clock events collector with single clock events",
    "Test_clockEventsCollector_GetMetrics/extra values from GPUs that are not monitored",
    "Test_clockEventsCollector_GetMetrics/clock events collector with multiple clock events",
    "Test_xidCollector_GetMetrics/XID collector with single XID event",
    "Test_xidCollector_GetMetrics/xid collector with multiple events",
)
ELSEWHERE = {
    "TestMetrics/Returns 200": "test_metrics_server.py",
    "TestMetricsReturnsErrorWhenClientClosedConnection": "test_metrics_server.py",
    "TestHealthReturnsOK": "test_exporter.py",
    "TestHealthReturnsOKWithRegistryAvailable": "test_exporter.py",
    "TestGetHostname/When os.Hostname() return hostname": "test_agent.py",
    "TestGetHostname/When GetHostname uses the NODE_NAME env variable": "test_agent.py",
    "TestPodMapperProcess_WhenMIGDevicesAvailableAndPodRunning": "test_exporter.py",
    "TestProcessPodMapper": "test_exporter.py",
    "TestProcessPodMapper_WithLabels": "test_extra_labels.py",
    "TestKubernetesVirtualGPUs_UnusedGPUsPreserveMetrics/1": "test_exporter.py",
    "TestKubernetesVirtualGPUs_UnusedMIGInstancesPreserveMetrics/1": "test_exporter.py",
}
"""Cases that hold and are tested beside the module that they are about."""
HOLD = (
    *(*LABELS, *PODS, *NAMES, *FILTERS, *JOB_FILES, *CGROUPS, *VALUES, *IDS, *CLAIMED, *LINES, *ENABLED, *LAST_XID),
    *(*WALKS, *ELSEWHERE),
)
_PATTERN = "a pattern that is none is refused with its variable; the original goes on without it"
_GOOGLE = "devices of Google's own plugin have names without UUIDs, by which nothing is joined"
_LAST = "a failed pass leaves the last page and is counted in windlass_exporter_failed_passes_total"
_FIRST = "until the first pass /health answers 503, so that a probe sees it"
DIFFER = {
    "TestNewLabelFilterCache/InvalidPattern": _PATTERN,
    "TestNewLabelFilterCache/MixedValidInvalid": _PATTERN,
    "TestPodDRAInfo/mig-device": "a claimed MIG device's own series has the pod, not all of its GPU's",
    "TestGetSharedGPU/gke device plugin, non-mig, shared": _GOOGLE,
    "TestGetSharedGPU/gke device plugin, non-mig, non-shared": _GOOGLE,
    "TestGetSharedGPU/gke device plugin, mig, shared": _GOOGLE,
    "TestGetSharedGPU/gke device plugin, mig, non-shared": _GOOGLE,
    "TestProcessPodMapper_WithD_Different_Format_Of_DeviceID": _GOOGLE,
    "TestMetrics/Returns 500 when Collector return error": _LAST,
    "TestMetrics/Returns 500 when Transformer returns error": _LAST,
    "TestHealthReturnsOKWhenRegistryIsNil": _FIRST,
    "TestHealthReturnsOKDuringReload": _FIRST,
    "TestP2PStatusToString": "of DCGM's states there are OK and NotSupported: NVML's wiring says no more",
    "TestProcessPodMapper_WithUID": "there is no label with the pod's UID",
    "TestProcessPodMapper_WithLabelsAndUID": "there is no label with the pod's UID",
    "TestPprofEndpointsEnabledWhenFlagSet": "there is no profiling endpoint",
}
_DCGM = "about DCGM's library: groups, watches and fields that are made in it"
_BLANK = "DCGM's blank values; NVML answers with an error, and the value is absent"
_HEALTH = "DCGM's health watches; ours come from the plugin's health (test_derived_metrics.py)"
_INSIDE = "a table, a cache or a helper inside the original"
NOT_APPLICABLE: dict[str, tuple[int, str]] = {
    "collector: TestNew…Collector, Register": (4 + 14 + 2 + 2 + 4, _DCGM),
    "collector: GetMetrics with errors of DCGM": (4 + 4 + 1, _DCGM),
    "collector: health": (4 + 1 + 1 + 1 + 1 + 1 + 1 + 5 + 1 + 1 + 1, _HEALTH),
    "collector: utils": (33, _BLANK),
    "collector: types": (11, _INSIDE),
    "counters: TestEmptyConfigMap and its like": (5, "the counters file is a file; a ConfigMap is mounted as one"),
    "deviceinfo": (88, "DCGM's hierarchy of GPUs, switches, links and CPUs; NVML has GPUs and instances"),
    "devicemonitoring, devicewatcher, devicewatchlistmanager": (64 + 57 + 16, _DCGM),
    "hostname: remote DCGM": (12, "there is no remote host engine"),
    "integration_test: collectors": (12, _DCGM),
    "nvmlprovider": (25, "a wrapper of NVML inside the original"),
    "capabilities, prerequisites, stdout, registry": (4 + 1 + 1 + 4 + 3, _INSIDE),
    "server: hot reload, unknown group, profiling": (12 + 1 + 1 + 1, _INSIDE),
    "transformation: caches and maps": (1 + 2 + 1 + 6 + 1 + 1 + 20 + 3, _INSIDE),
    "utils: all but label names": (10, _INSIDE),
    "watcher": (3 + 11, "DCGM's bind events; GPUs that come and go are seen by every pass"),
    "cmd": (11, _INSIDE),
}
