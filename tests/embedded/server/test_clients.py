"""The official Python client, lightkube, and Windlass's own informer: list, watch, create, patch, delete."""

from __future__ import annotations

import asyncio
from pathlib import Path

import kubernetes
import lightkube
import pytest
from kubernetes.client.exceptions import ApiException
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod
from tests.embedded.server.harness import Served

from windlass.cluster.delta import Delta, Put
from windlass.kube.client import KubeClient
from windlass.kube.client_config import load_client_config
from windlass.kube.informer import Informer
from windlass.kube.resources import PODS as POD_RESOURCE


def test_the_official_client(served: Served) -> None:
    with kubernetes.config.new_client_from_config(str(served.kubeconfig)) as connection:
        core = kubernetes.client.CoreV1Api(connection)
        assert kubernetes.client.VersionApi(connection).get_code().major == "1"
        metadata = kubernetes.client.V1ObjectMeta(name="official", labels={"a": "b"})
        start = core.list_namespaced_config_map("default").metadata.resource_version
        made = core.create_namespaced_config_map(
            "default", kubernetes.client.V1ConfigMap(metadata=metadata, data={"x": "1"})
        )
        assert made.metadata.uid
        core.patch_namespaced_config_map("official", "default", {"data": {"y": "2"}})
        assert core.read_namespaced_config_map("official", "default").data == {"x": "1", "y": "2"}
        found = core.list_config_map_for_all_namespaces(label_selector="a=b")
        assert [item.metadata.name for item in found.items] == ["official"]
        core.delete_namespaced_config_map("official", "default")
        watch, told = kubernetes.watch.Watch(), []
        for event in watch.stream(
            core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=60
        ):
            told.append((event["type"], event["object"].metadata.name))
            if len(told) == 3:
                watch.stop()
        assert told == [("ADDED", "official"), ("MODIFIED", "official"), ("DELETED", "official")]
        with pytest.raises(ApiException) as refused:
            core.read_namespaced_config_map("official", "default")
        assert refused.value.status == 404


def test_lightkube(served: Served) -> None:
    client = lightkube.Client(
        config=lightkube.KubeConfig.from_file(str(served.kubeconfig)),
        namespace="default",
        field_manager="light",
    )
    pod = Pod(
        metadata=ObjectMeta(name="light", namespace="default"),
        spec=PodSpec(containers=[Container(name="main", image="train")]),
    )
    made = client.create(pod)
    assert made.status is not None
    assert made.status.phase == "Pending"
    client.patch(Pod, "light", {"metadata": {"labels": {"a": "b"}}})
    assert [item.metadata.name for item in client.list(Pod, labels={"a": "b"}) if item.metadata] == ["light"]
    for kind, item in client.watch(Pod, fields={"metadata.name": "light"}):
        assert (kind, item.metadata.name if item.metadata else "") == ("ADDED", "light")
        break
    config = ConfigMap(metadata=ObjectMeta(name="light", namespace="default"), data={"x": "1"})
    assert client.apply(config).data == {"x": "1"}
    client.delete(Pod, "light")
    with pytest.raises(ApiError) as refused:
        client.get(Pod, "light")
    assert refused.value.status.code == 404


def test_windlass_own_informer(served: Served, tmp_path: Path) -> None:
    seen: list[Delta] = []

    async def follow() -> None:
        async with KubeClient(load_client_config(str(served.kubeconfig))) as client:
            informer = Informer(client, POD_RESOURCE, seen.extend)
            running = asyncio.create_task(informer.run())
            await asyncio.wait_for(informer.synced.wait(), 60)
            spec = {"containers": [{"name": "main", "image": "train"}]}
            await asyncio.to_thread(
                served.call,
                lambda: served.verbs.create("pods", "default", {"metadata": {"name": "own"}, "spec": spec}),
            )
            async with asyncio.timeout(60):
                while not any(isinstance(delta, Put) for delta in seen):
                    await asyncio.sleep(0.02)
            running.cancel()
            assert informer.restarts == 0

    asyncio.run(follow())
