"""StatefulSets: names that last, one after the other, updates from the top."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.in_process_cluster import InProcessCluster, template

from windlass.embedded.controllers.revisions import CONTROLLER_REVISIONS
from windlass.model.unstructured import Unstructured

SETS = "statefulsets.apps"


@pytest.fixture
def world() -> InProcessCluster:
    return InProcessCluster().run()


def make(world: InProcessCluster, replicas: int = 3, **spec: Any) -> None:
    labels = {"app": "db"}
    base = {
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": template(labels),
    }
    world.apply(SETS, "db", {**base, **spec})
    world.step()


def change(world: InProcessCluster, **spec: Any) -> None:
    world.verbs.patch(SETS, "default", "db", {"spec": spec})
    world.step()


def new_image(name: str) -> Unstructured:
    return {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}


def images(world: InProcessCluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in world.pods()}


class TestOrder:
    def test_each_waits_for_the_one_before(self, world: InProcessCluster) -> None:
        make(world)
        assert list(images(world)) == ["db-0"]
        world.set_phase(world.pods()[0], "Running")
        world.step()
        assert list(images(world)) == ["db-0", "db-1"]
        world.start_all()
        assert list(images(world)) == ["db-0", "db-1", "db-2"]
        pod = world.get("pods", "db-1")
        assert pod["spec"]["hostname"] == "db-1"
        assert pod["spec"]["subdomain"] == "db"
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
        assert world.get(SETS, "db")["status"]["readyReplicas"] == 3

    def test_parallel_doesn_t_wait(self, world: InProcessCluster) -> None:
        make(world, podManagementPolicy="Parallel")
        assert list(images(world)) == ["db-0", "db-1", "db-2"]

    def test_the_highest_goes_first(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        change(world, replicas=1)
        assert list(images(world)) == ["db-0"]

    def test_a_lost_pod_comes_back_under_its_name(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        world.verbs.delete("pods", "default", "db-1")
        world.step()
        assert list(images(world)) == ["db-0", "db-1", "db-2"]

    def test_claims_outlive_pods(self, world: InProcessCluster) -> None:
        claim = {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        make(world, 1, volumeClaimTemplates=[claim])
        volumes = world.get("pods", "db-0")["spec"]["volumes"]
        assert {"claimName": "data-db-0"} in [volume.get("persistentVolumeClaim") for volume in volumes]
        world.verbs.delete("pods", "default", "db-0")
        world.step()
        assert [item["metadata"]["name"] for item in world.verbs.list("persistentvolumeclaims")] == ["data-db-0"]


class TestUpdate:
    def test_from_the_top_one_at_a_time(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        change(world, **new_image("new"))
        assert images(world) == {"db-0": "train", "db-1": "train", "db-2": "new"}
        world.pass_time(1)
        assert images(world)["db-1"] == "train", "the new one is not ready yet"
        world.start_all()
        assert set(images(world).values()) == {"new"}
        status = world.get(SETS, "db")["status"]
        assert status["currentRevision"] == status["updateRevision"]
        assert [item["revision"] for item in world.verbs.list(CONTROLLER_REVISIONS, "default")] in (
            [1, 2],
            [2, 1],
        )

    def test_a_partition_holds_the_rest_back(self, world: InProcessCluster) -> None:
        make(world, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
        world.start_all()
        change(world, **new_image("new"))
        world.start_all()
        assert images(world) == {"db-0": "train", "db-1": "train", "db-2": "new"}
        world.verbs.delete("pods", "default", "db-0")
        world.step().start_all()
        assert images(world)["db-0"] == "train", "below the partition the old template stands"
        status = world.get(SETS, "db")["status"]
        assert status["currentRevision"] != status["updateRevision"]
        assert status["updatedReplicas"] == 1

    def test_on_delete_waits_for_somebody_to_delete(self, world: InProcessCluster) -> None:
        make(world, updateStrategy={"type": "OnDelete"})
        world.start_all()
        change(world, **new_image("new"))
        world.start_all()
        assert set(images(world).values()) == {"train"}
        world.verbs.delete("pods", "default", "db-1")
        world.step().start_all()
        assert images(world) == {"db-0": "train", "db-1": "new", "db-2": "train"}
