"""A change of the image of a StatefulSet: its waves are pods, and its partition stops it, whoever lives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.operator.play import Play, fleet, is_up
from tests.operator.world import World

from windlass.model.convert import convert
from windlass.model.errors import InputError
from windlass.operator.apply import patch_stateful_set
from windlass.operator.forecast import forecast
from windlass.operator.kinds.codec import decode_operator_object
from windlass.operator.observed import GateReading
from windlass.operator.pods import PodView
from windlass.operator.stateful_sets import StatefulSetView, StatefulSetWire, stateful_set
from windlass.operator.writes import PatchStatefulSet

OLD, NEW = "serve:1", "serve:2"
POD_SECONDS = 30
CHANGE: dict[str, Any] = {
    "stack": "h100",
    "workloadImage": {"namespace": "team", "name": "llm", "container": "server", "image": NEW},
    "waves": [{"nodes": 1, "bake": "5m"}, {"nodes": "50%", "bake": "5m"}, {"nodes": "100%", "bake": "5m"}],
}


@dataclass
class Sets:
    """Plays the controller of StatefulSets: pod after pod, the last one first, down to the partition."""

    world: World
    view: StatefulSetView
    broken: frozenset[str] = frozenset()
    """Images whose pods never become ready."""
    host: str = ""
    """Where all of its pods are; empty: each is on a node of its own."""
    most: list[int] = field(default_factory=list)
    """How many pods had the new image after each step."""

    def __post_init__(self) -> None:
        self.world.sets = self
        for ordinal in range(self.view.replicas):
            self._pod(ordinal, OLD)

    def seen(self) -> dict[str, StatefulSetView]:
        return {self.view.key: self.view}

    def patch(self, write: PatchStatefulSet) -> bool:
        if write.version != self.view.version:
            return False
        self._put(
            version=str(int(self.view.version) + 1),
            images={write.container: write.image},
            partition=write.partition,
            is_seen=False,
        )
        self.world.later(1, self._step)
        return True

    def images(self) -> list[str]:
        names = [f"team/llm-{ordinal}" for ordinal in range(self.view.replicas)]
        return [self.world.pods[name].labels["controller-revision-hash"] for name in names]

    def _step(self) -> None:
        image = self.view.images["server"]
        self._put(is_seen=True, revision=image)
        for ordinal in reversed(range(self.view.partition, self.view.replicas)):
            if self.images()[ordinal] != image:
                self._pod(ordinal, image)
                self.world.later(POD_SECONDS, self._step)
                break
        images = self.images()
        self.most.append(images.count(NEW))
        ready = sum(image not in self.broken for image in images)
        self._put(updated=images.count(image), ready=ready)

    def _put(self, **fields: Any) -> None:
        self.view = msgspec.structs.replace(self.view, **fields)

    def _pod(self, ordinal: int, image: str) -> None:
        key = f"team/llm-{ordinal}"
        labels = {"controller-revision-hash": image}
        self.world.pods[key] = PodView(
            key=key,
            uid=f"{key}-{image}",
            node=self.host or f"gpu-{ordinal:03d}",
            gpus=1 if self.host else 8,
            owner_uid="uid-llm",
            labels=labels,
        )


def served(kills: int = 0, replicas: int = 6, **change: Any) -> tuple[Play, Sets]:
    chance = random.Random(kills)
    world = fleet(8)
    play = Play(world, kill=lambda number: kills > 0 and chance.random() < 0.3).run(lambda: is_up(world))
    view = StatefulSetView(
        key="team/llm",
        uid="uid-llm",
        version="1",
        replicas=replicas,
        images={"server": OLD},
        revision=OLD,
        updated=replicas,
        ready=replicas,
    )
    sets = Sets(world, view)
    world.add("FleetChange", "serve-2", CHANGE | change)
    return play, sets


def ended(play: Play) -> str:
    return play.until_phase("serve-2", "Succeeded", "RolledBack", "Failed", "Refused", "Aborted")


@pytest.mark.parametrize("kills", range(3))
def test_a_good_image_reaches_every_pod_in_waves(kills: int) -> None:
    play, sets = served(kills)
    play.run(lambda: play.world.change("serve-2").status.phase == "Baking")
    assert sets.images() == [OLD] * 5 + [NEW]
    assert play.world.change("serve-2").status.from_ == OLD
    play.run(lambda: play.world.change("serve-2").status.wave == 2)
    assert sets.images() == [OLD] * 3 + [NEW] * 3
    assert ended(play) == "Succeeded"
    assert sets.images() == [NEW] * 6
    assert sets.view.partition == 0
    status = play.world.change("serve-2").status
    assert (status.changed, status.nodes) == (6, 6)
    assert not any(node.taints for node in play.world.nodes.values()), "no node is taken for it"


@pytest.mark.parametrize("kills", range(3))
def test_an_image_whose_pods_never_become_ready_goes_back_after_the_first(kills: int) -> None:
    play, sets = served(kills)
    sets.broken = frozenset({NEW})
    assert ended(play) == "RolledBack"
    assert max(sets.most) == 1, "the partition keeps the others"
    assert sets.images() == [OLD] * 6
    assert (sets.view.images, sets.view.partition) == ({"server": OLD}, 0)
    assert "1 of 1 pods run serve:2, 5 of 6 are ready" in play.world.change("serve-2").status.message


def test_a_slower_image_goes_back_by_the_nodes_of_its_pods() -> None:
    gate = {"name": "p99", "family": "slo", "query": "p99", "maxRatio": 1.2}
    play, sets = served(gates=[gate], waves=[{"nodes": 2, "bake": "5m"}, {"nodes": "100%", "bake": "5m"}])

    def reading(world: World, change: str, name: str) -> GateReading:
        labels = {pod.node: pod.labels["controller-revision-hash"] for pod in world.pods.values()}
        return GateReading(world.now, {node: 2.0 if labels.get(node) == NEW else 1.0 for node in world.nodes})

    play.world.readings = reading
    assert ended(play) == "RolledBack"
    assert "2 on 2 changed, 1 on 4 control nodes" in play.world.change("serve-2").status.message
    assert sets.images() == [OLD] * 6


def test_a_gate_with_a_ratio_compares_the_last_pods_with_those_before() -> None:
    play, sets = served(gates=[{"name": "p99", "query": "p99", "maxRatio": 1.2}], waves=[{"nodes": "100%"}])
    play.world.readings = lambda world, change, name: GateReading(world.now, dict.fromkeys(world.nodes, 1.0))
    play.run(lambda: play.world.change("serve-2").status.phase == "Baking")
    assert sets.images() == [OLD] + [NEW] * 5
    assert ended(play) == "Succeeded"
    assert sets.images() == [NEW] * 6


def test_faults_of_a_node_that_has_pods_of_both_images_count() -> None:
    play, sets = served()
    for ordinal in range(6):
        key = f"team/llm-{ordinal}"
        play.world.pods[key] = msgspec.structs.replace(play.world.pods[key], node="gpu-000", gpus=1)
    sets.host = "gpu-000"
    play.run(lambda: play.world.change("serve-2").status.phase == "Baking")
    play.world.fail_gpu_under_work("gpu-000", 3, "Xid 119")
    assert ended(play) == "RolledBack"
    assert "Xid 119 on 1 of 1 changed, 0 of 0 control nodes" in play.world.change("serve-2").status.message


def test_an_abort_leaves_what_has_it_and_keeps_it_from_the_others() -> None:
    play, sets = served()
    play.run(lambda: play.world.change("serve-2").status.wave == 1)
    play.world.put_spec("FleetChange", "serve-2", command={"id": "1", "verb": "Abort"})
    assert ended(play) == "Aborted"
    play.run(seconds=3600)
    assert sets.images().count(NEW) < 6
    assert "of 6 pods keep the image" in play.world.change("serve-2").status.message


def test_a_rollback_after_the_end_brings_every_pod_back() -> None:
    play, sets = served()
    assert ended(play) == "Succeeded"
    play.world.put_spec("FleetChange", "serve-2", command={"id": "1", "verb": "Rollback"})
    play.run(lambda: play.world.change("serve-2").status.phase != "Succeeded", 600)
    assert ended(play) == "RolledBack"
    assert sets.images() == [OLD] * 6


def test_one_change_of_a_stack_at_a_time_whatever_its_component() -> None:
    play, _ = served()
    play.run(lambda: play.world.change("serve-2").status.phase == "Baking")
    play.world.add("FleetChange", "r590", {"stack": "h100", "driver": {"version": "590.44.01"}})
    assert play.until_phase("r590", "Refused", seconds=600) == "Refused"


def test_a_stateful_set_that_goes_away_ends_the_change() -> None:
    play, sets = served()
    play.run(lambda: play.world.change("serve-2").status.phase == "Baking")
    sets.seen = dict  # type: ignore[method-assign]
    assert ended(play) == "Failed"
    assert play.world.change("serve-2").status.reason == "WorkloadMissing"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"is_on_delete": True}, "updateStrategy OnDelete"),
        ({"partition": 2}, "somebody else rolls it out"),
        ({"images": {"other": OLD}}, "has no container server: it has other"),
        ({"uid": "another"}, "no pod of StatefulSet team/llm is on a node of stack h100"),
        ({"key": "team/x"}, "there is no StatefulSet team/llm"),
    ],
)
def test_what_can_not_be_rolled_out_in_waves_is_refused(fields: dict[str, Any], words: str) -> None:
    play, sets = served()
    sets.view = msgspec.structs.replace(sets.view, **fields)
    assert ended(play) == "Refused"
    assert words in play.world.change("serve-2").status.message


def test_an_image_that_runs_already_is_done() -> None:
    play, sets = served()
    sets.view = msgspec.structs.replace(sets.view, images={"server": NEW})
    assert ended(play) == "Succeeded"


def test_a_forecast_plays_the_waves() -> None:
    play, _ = served()
    change = play.world.objects["FleetChange"].pop("serve-2")
    found = forecast(play.world.observe(), change, play.world.now, node_seconds=30)
    assert (found.phase, found.taken) == ("Succeeded", ())


def test_one_write_has_image_and_partition() -> None:
    request = patch_stateful_set(PatchStatefulSet("team/llm", "7", "server", NEW, 5))
    assert request.path == "/apis/apps/v1/namespaces/team/statefulsets/llm"
    body = request.body
    assert isinstance(body, dict)
    assert body["metadata"] == {"resourceVersion": "7"}
    assert body["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 5}
    assert body["spec"]["template"]["spec"]["containers"] == [{"name": "server", "image": NEW}]


def test_a_stateful_set_is_read() -> None:
    tree = {
        "metadata": {"name": "llm", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": {
            "replicas": 4,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
            "template": {"spec": {"containers": [{"name": "server", "image": OLD}]}},
        },
        "status": {"observedGeneration": 2, "readyReplicas": 3, "updatedReplicas": 2, "updateRevision": "llm-6f"},
    }
    view = stateful_set(convert(tree, StatefulSetWire))
    assert view == StatefulSetView(
        key="team/llm",
        uid="u",
        version="7",
        replicas=4,
        partition=2,
        images={"server": OLD},
        revision="llm-6f",
        updated=2,
        ready=3,
        is_seen=False,
    )


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"driver": {"version": "1"}}, "spec"),
        ({"canary": {"nodes": {"matchLabels": {"a": "b"}}}}, "spec.canary"),
        ({"workloadImage": {**CHANGE["workloadImage"], "image": ""}}, "spec.workloadImage.image"),
        ({"workloadImage": {**CHANGE["workloadImage"], "name": ""}}, "spec.workloadImage.name"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(more: dict[str, Any], path: str) -> None:
    tree = {"apiVersion": "windlass.dev/v1alpha1", "kind": "FleetChange", "metadata": {"name": "x"}}
    with pytest.raises(InputError) as raised:
        decode_operator_object({**tree, "spec": CHANGE | more})
    assert path in str(raised.value)
