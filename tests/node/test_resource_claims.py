"""Pods that hold GPUs by ResourceClaims (DRA): the exporter names them, with dcgm-exporter's labels."""

from __future__ import annotations

from typing import Any

import pytest
from tests.node.machines import machine

from windlass.model.errors import ClusterUnreachable
from windlass.node.exporter.collect import collect_families
from windlass.node.exporter.collection_context import CollectionContext
from windlass.node.exporter.counters import read_counters
from windlass.node.exporter.pod_resources import holders_from_response
from windlass.node.exporter.resource_slices import DRIVER, ResourceSlices, device_uuids
from windlass.node.node_api import NodeApi, NotFound
from windlass.node.protos import podresources_pb2 as pr

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"


def text(value: str) -> dict[str, str]:
    return {"string": value}


def resource_slice(**devices: dict[str, Any]) -> dict[str, Any]:
    listed = [{"name": name.replace("_", "-"), **device} for name, device in devices.items()]
    return {"spec": {"driver": DRIVER, "pool": {"name": "n1"}, "devices": listed}}


def claiming(device: str, driver: str = DRIVER) -> pr.ListPodResourcesResponse:
    answer = pr.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="train-0", namespace="lab").containers.add(name="main")
    claim = container.dynamic_resources.add(claim_name="train-0-gpu", claim_namespace="lab")
    claim.claim_resources.add(driver_name=driver, pool_name="n1", device_name=device)
    return answer


class Api:
    """An API server with these slices, which counts how often it is asked."""

    def __init__(self, *slices: dict[str, Any], down: bool = False) -> None:
        self.slices, self.down, self.asked = list(slices), down, 0

    def list_resource_slices(self, driver: str) -> list[dict[str, Any]]:
        assert driver == DRIVER
        self.asked += 1
        if self.down:
            raise ClusterUnreachable("no route")
        return self.slices


def test_a_claimed_gpu_is_joined_with_the_claims_labels() -> None:
    backend = machine(count=2)
    first, second = (gpu.uuid for gpu in backend.inventory().gpus)
    api: Any = Api(resource_slice(gpu_0={"attributes": {"uuid": text(first)}}))
    holders = holders_from_response(claiming("gpu-0"), {}, ResourceSlices(api).uuid_of)
    counters, _ = read_counters(f"{TEMPERATURE}, gauge, t")
    (family,) = collect_families(backend, counters, CollectionContext(holders=holders))
    held, free = family.samples
    assert held.labels["UUID"] == first
    assert {name: value for name, value in held.labels.items() if name.startswith(("pod", "dra_"))} == {
        "pod": "train-0",
        "dra_claim_name": "train-0-gpu",
        "dra_claim_namespace": "lab",
        "dra_driver_name": DRIVER,
        "dra_pool_name": "n1",
        "dra_device_name": "gpu-0",
    }
    assert free.labels["UUID"] == second
    assert "pod" not in free.labels


def test_mig_devices_are_found_by_their_own_uuid_or_their_gpus() -> None:
    static = {"attributes": {"type": text("mig"), "uuid": text("MIG-1"), "parentUUID": text("GPU-1")}}
    dynamic = {"attributes": {"type": text("mig"), "parentUUID": text("GPU-1")}}
    found = device_uuids([resource_slice(gpu_0_mig_0=static, gpu_0_mig_1=dynamic)])
    assert found == {("n1", "gpu-0-mig-0"): "MIG-1", ("n1", "gpu-0-mig-1"): "GPU-1"}


def test_older_servers_have_attributes_one_level_deeper() -> None:
    found = device_uuids([resource_slice(gpu_0={"basic": {"attributes": {"uuid": text("GPU-1")}}})])
    assert found == {("n1", "gpu-0"): "GPU-1"}


def test_other_drivers_and_devices_without_a_uuid_join_nothing() -> None:
    api: Any = Api(resource_slice(gpu_0={"attributes": {"uuid": text("GPU-1")}}, gpu_1={}))
    uuid_of = ResourceSlices(api).uuid_of
    assert holders_from_response(claiming("gpu-0", "nic.example.com"), {}, uuid_of) == {}
    assert api.asked == 0, "the API server is asked for claims of GPUs only"
    assert holders_from_response(claiming("gpu-1"), {}, uuid_of) == {}


def test_the_api_server_is_asked_again_only_for_new_devices_and_not_at_once() -> None:
    now = 100.0
    api: Any = Api(resource_slice(gpu_0={"attributes": {"uuid": text("GPU-1")}}))
    slices = ResourceSlices(api, clock=lambda: now)
    assert [slices.uuid_of("n1", "gpu-0") for _ in range(3)] == ["GPU-1"] * 3
    assert api.asked == 1
    assert [slices.uuid_of("n1", "gpu-9") for _ in range(3)] == [""] * 3
    assert api.asked == 1
    now += 60
    api.down = True
    assert slices.uuid_of("n1", "gpu-9") == ""
    assert slices.uuid_of("n1", "gpu-0") == "GPU-1", "what is known stays known"
    assert api.asked == 2


@pytest.mark.parametrize("known", ["v1", "v1beta1", ""])
def test_every_version_of_the_api_is_tried(monkeypatch: pytest.MonkeyPatch, known: str) -> None:
    asked = []

    def request(method: str, path: str) -> dict[str, Any]:
        asked.append(path)
        if f"/{known}/" not in path:
            raise NotFound(path)
        return {"items": [resource_slice()]}

    api = NodeApi(None, "n1")  # type: ignore[arg-type]
    monkeypatch.setattr(api, "request", request)
    assert len(api.list_resource_slices(DRIVER)) == bool(known)
    assert "spec.nodeName%3Dn1%2Cspec.driver%3Dgpu.nvidia.com" in asked[0]
