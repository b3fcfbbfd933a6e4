"""Volumes before a bind: what is written for a claim, how long it is waited for, and when waiting is in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.apply.objects import custom, decoded, pod
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.apply.volume_binding import PodVolumes, bind_pod_volumes, claim_keys, unbound_claims
from windlass.kube.errors import ApiError, Conflict, LeaseLost, ServerUnavailable
from windlass.model.names.kubernetes import SELECTED_NODE_ANNOTATION
from windlass.model.unstructured import Unstructured
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim


def claim(name: str, phase: str = "Pending", node: str = "") -> Unstructured:
    metadata = {"annotations": {SELECTED_NODE_ANNOTATION: node}} if node else {}
    return custom("v1", "PersistentVolumeClaim", name, metadata=metadata, status={"phase": phase})


def volume(name: str) -> Unstructured:
    return custom("v1", "PersistentVolume", name, metadata={"namespace": ""}, spec={"capacity": {"storage": "1Gi"}})


class Claims:
    """The claims and volumes of a server; the informer shows them as they are."""

    def __init__(self, *objects: Unstructured) -> None:
        self.api = FakeApi()
        for tree in objects:
            self.api.store(f"{tree['kind'].lower()}s", tree)
        self.client = MemoryClient(self.api)
        self.leads = True

    def find(self, key: str) -> PersistentVolumeClaim | None:
        tree = self.api.objects.get("persistentvolumeclaims", {}).get(key)
        return None if tree is None else decoded(tree)

    def volume(self, name: str) -> PersistentVolume:
        found: PersistentVolume = decoded(self.api.get("persistentvolumes", name))
        return found

    def change(self, tree: Unstructured) -> None:
        self.api.store("persistentvolumeclaims", tree)

    async def bind(self, claims: Sequence[str], static: Mapping[str, PersistentVolume] | None = None) -> None:
        volumes = PodVolumes("n1", claims, static or {})
        await bind_pod_volumes(self.client, volumes, self.find, lambda: self.leads)

    def start(self, *claims: str) -> asyncio.Task[None]:
        return asyncio.create_task(self.bind(claims))


def volumes(*sources: Mapping[str, Any]) -> dict[str, Any]:
    named = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    return {"volumes": named}


def claimed(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        ({}, []),
        (volumes({"emptyDir": {}}), []),
        (volumes(claimed("data")), ["team/data"]),
        (volumes(claimed("data"), {"emptyDir": {}}, {"ephemeral": {}}), ["team/data", "team/p-v2"]),
    ],
)
def test_claims_of_a_pod_are_named_or_made_from_its_ephemeral_volumes(spec: dict[str, Any], keys: list[str]) -> None:
    assert claim_keys(decoded(pod("p", spec=spec))) == keys


def test_a_pod_without_a_namespace_has_its_claims_in_the_default_one() -> None:
    assert claim_keys(decoded(pod("p", namespace="", spec=volumes(claimed("data"), {"ephemeral": {}})))) == [
        "default/data",
        "default/p-v1",
    ]


def test_only_claims_that_are_there_and_not_bound_are_to_be_bound() -> None:
    scene = Claims(claim("bound", "Bound"), claim("waits"), claim("lost", "Lost"))
    spec = volumes(*(claimed(name) for name in ("bound", "waits", "missing", "lost")))
    assert unbound_claims(decoded(pod("p", spec=spec)), scene.find) == ["team/waits", "team/lost"]


@in_virtual_time
async def test_a_claim_without_a_volume_is_provisioned_for_the_node() -> None:
    scene = Claims(claim("data"))
    binding = scene.start("team/data")
    await settle()
    (sent,) = scene.client.sent
    assert (sent.method, sent.path) == ("PATCH", "/api/v1/namespaces/team/persistentvolumeclaims/data")
    assert sent.body == {"metadata": {"annotations": {SELECTED_NODE_ANNOTATION: "n1"}}}
    await asyncio.sleep(300)
    assert not binding.done(), "it takes as long as it takes"
    scene.change(claim("data", "Bound", node="n1"))
    await binding
    assert len(scene.client.sent) == 1


@in_virtual_time
async def test_an_existing_volume_is_bound_to_its_claim_as_it_was_seen() -> None:
    scene = Claims(claim("data"), claim("scratch"), volume("disk"))
    known = scene.volume("disk")
    binding = asyncio.create_task(scene.bind(["team/data", "team/scratch"], {"team/data": known}))
    await settle()
    disk, scratch = scene.client.sent
    assert disk.path == "/api/v1/persistentvolumes/disk"
    assert disk.body["metadata"]["resourceVersion"] == known.metadata.resource_version
    assert disk.body["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert disk.body["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "team",
        "name": "data",
        "uid": "uid-data",
    }
    assert scratch.path.endswith("/persistentvolumeclaims/scratch"), "the other one is provisioned"
    scene.change(claim("data", "Bound"))
    scene.change(claim("scratch", "Bound"))
    await binding


@in_virtual_time
async def test_a_volume_that_has_changed_is_not_taken() -> None:
    scene = Claims(claim("data"), volume("disk"))
    known = scene.volume("disk")
    scene.api.store("persistentvolumes", volume("disk"))
    with pytest.raises(Conflict):
        await scene.bind(["team/data"], {"team/data": known})


@in_virtual_time
async def test_all_claims_are_waited_for() -> None:
    scene = Claims(claim("a"), claim("b"))
    binding = scene.start("team/a", "team/b")
    await settle()
    scene.change(claim("a", "Bound", node="n1"))
    await asyncio.sleep(1)
    assert not binding.done()
    scene.change(claim("b", "Bound", node="n1"))
    await asyncio.sleep(0.3)
    assert binding.done(), "it looks four times a second"


@in_virtual_time
async def test_claims_are_looked_at_four_times_a_second() -> None:
    scene = Claims(claim("a"))
    binding = scene.start("team/a")
    await asyncio.sleep(0.1)
    scene.change(claim("a", "Bound", node="n1"))
    await asyncio.sleep(0.1)
    assert not binding.done()
    await asyncio.sleep(0.1)
    assert binding.done()


@in_virtual_time
async def test_a_claim_that_is_deleted_is_not_waited_for() -> None:
    scene = Claims(claim("a"), claim("b"))
    binding = scene.start("team/a", "team/b")
    await asyncio.sleep(5)
    scene.api.remove("persistentvolumeclaims", "team/b")
    with pytest.raises(ApiError, match="claim team/b was deleted") as caught:
        await binding
    assert caught.value.code == 404


@in_virtual_time
async def test_a_node_that_the_provisioner_gave_back_is_left() -> None:
    scene = Claims(claim("a"))
    binding = scene.start("team/a")
    await asyncio.sleep(5)
    scene.change(claim("a"))  # without the annotation
    with pytest.raises(ApiError, match="can't create a volume for claim team/a on n1") as caught:
        await binding
    assert caught.value.code == 503


@in_virtual_time
async def test_a_claim_that_is_shown_late_with_its_node_is_waited_for() -> None:
    """The informer may be behind our own write."""
    scene = Claims(claim("a"))
    shown = scene.find("team/a")
    volumes_to_bind = PodVolumes("n1", ["team/a"], {})
    binding = asyncio.create_task(bind_pod_volumes(scene.client, volumes_to_bind, lambda key: shown, lambda: True))
    await asyncio.sleep(60)
    assert not binding.done()
    shown = scene.find("team/a")
    await asyncio.sleep(60)
    assert not binding.done()
    shown = decoded(claim("a", "Bound", node="n1"))
    await binding


@in_virtual_time
async def test_after_ten_minutes_another_node_may_be_tried() -> None:
    scene = Claims(claim("a"), claim("b"), claim("c", "Bound"))
    binding = scene.start("team/a", "team/b", "team/c")
    await asyncio.sleep(599)
    assert not binding.done()
    with pytest.raises(ApiError, match=r"no volume for claims team/a, team/b within 10 minutes") as caught:
        await asyncio.wait_for(binding, 2)
    assert caught.value.code == 504


@in_virtual_time
async def test_who_has_lost_the_lease_waits_no_more() -> None:
    scene = Claims(claim("a"), claim("b"))
    binding = scene.start("team/a", "team/b")
    await asyncio.sleep(1)
    scene.leads = False
    with pytest.raises(LeaseLost, match="team/a, team/b"):
        await asyncio.wait_for(binding, 1)


@in_virtual_time
async def test_nothing_is_written_without_the_lease() -> None:
    scene = Claims(claim("a"))
    scene.leads = False
    with pytest.raises(LeaseLost):
        await scene.bind(["team/a"])
    assert not scene.client.sent


@pytest.mark.parametrize(("error", "kind"), [(refused(403, "no"), ApiError), (lost_answer(), ServerUnavailable)])
@in_virtual_time
async def test_a_claim_that_cannot_be_written_is_not_waited_for(error: Exception, kind: type[Exception]) -> None:
    scene = Claims(claim("a"))
    scene.client.fail("PATCH persistentvolumeclaims/a", error)
    with pytest.raises(kind):
        await scene.bind(["team/a"])


@in_virtual_time
async def test_a_claim_of_a_static_volume_that_has_gone_is_reported_as_deleted() -> None:
    scene = Claims(volume("disk"))
    with pytest.raises(ApiError) as caught:
        await scene.bind(["team/data"], {"team/data": scene.volume("disk")})
    assert caught.value.code == 404
