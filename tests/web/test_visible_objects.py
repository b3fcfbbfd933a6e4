"""What a viewer of one namespace gets of the cluster: its own, the fleet without names, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from tests.embedded.page.feed import Feed, nodes

from windlass.web.page_state import PageState
from windlass.web.viewers import EVERYTHING, Viewer
from windlass.web.visible_objects import VisibleObjects

OWN = Viewer("ada", frozenset({"own"}), sees_nodes=False)


def pod(namespace: str, name: str, node: str, **more: Any) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name, "labels": {"app": f"{namespace}-label"}, "uid": name, **more}
    resources = {"limits": {"nvidia.com/gpu": "2"}}
    container = {"name": f"{namespace}-container", "image": f"{namespace}-image", "resources": resources}
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "message": f"{namespace}-message"},
    }


def event(namespace: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": namespace, "name": f"{namespace}-pod"}
    meta = {"namespace": namespace, "name": f"{namespace}-event", "uid": f"{namespace}-event"}
    return {"metadata": meta, "involvedObject": about, "message": f"{namespace}-message", "reason": "Scheduled"}


def queue(namespace: str, target: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": f"{namespace}-local"}, "spec": {"clusterQueue": target}}


def feed() -> Feed:
    made = Feed()
    made.put("nodes", *nodes())
    owner = [{"kind": "Job", "name": "secret-job", "controller": True}]
    made.put("pods", pod("own", "own-pod", "h100-0"), pod("secret", "secret-pod", "h100-0", ownerReferences=owner))
    made.put("events", event("own"), event("secret"))
    job = {"spec": {"parallelism": 1, "template": {}}}
    for namespace in ("own", "secret"):
        made.put("jobs.batch", {"metadata": {"namespace": namespace, "name": f"{namespace}-job"}, **job})
    for name in ("clusterqueues", "localqueues", "workloads"):
        made.put("customresourcedefinitions.apiextensions.k8s.io", {"metadata": {"name": f"{name}.kueue.x-k8s.io"}})
    made.put("localqueues.kueue.x-k8s.io", queue("own", "own-queue"), queue("secret", "secret-queue"))
    for name in ("own-queue", "secret-queue"):
        made.put("clusterqueues.kueue.x-k8s.io", {"metadata": {"name": name}, "spec": {}})
    return made


def test_no_name_of_others_is_in_what_a_viewer_gets() -> None:
    shown = PageState(VisibleObjects(feed(), OWN)).snapshot().decode()
    assert "secret" not in shown
    assert "h100-0" not in shown
    assert "rack" not in json.loads(shown)["nodes"][0] or not json.loads(shown)["nodes"][0]["rack"]
    document = json.loads(shown)
    assert {job["key"] for job in document["jobs"]} == {"own/Pod/own-pod", "own/Job/own-job"}
    assert [found["name"] for found in document["queues"]] == ["own-queue"]
    assert [found["ns"] for found in document["events"]] == ["own"]


def test_the_fleets_sums_are_those_of_the_whole_fleet() -> None:
    def used(viewer: Viewer) -> list[int]:
        source = feed()
        state = PageState(VisibleObjects(source, viewer) if viewer is not EVERYTHING else source)
        shown = json.loads(state.snapshot())["nodes"]
        return sorted(sum(len(gpu.get("uses", ())) for gpu in node["gpus"]) for node in shown)

    assert used(OWN) == used(EVERYTHING)
    assert max(used(OWN)) == 4


def test_changes_are_filtered_as_the_first_picture_is() -> None:
    source = feed()
    state = PageState(VisibleObjects(source, OWN))
    state.snapshot()
    source.put("pods", pod("secret", "secret-later", "h100-1"), pod("own", "own-later", "h100-1"))
    source.put("events", {**event("secret"), "metadata": {"namespace": "secret", "name": "later", "uid": "later"}})
    changes = state.drain_changes().decode()
    assert "own-later" in changes
    assert "secret" not in changes
    assert "h100-1" not in changes


def test_who_may_list_nodes_sees_their_names_and_not_whose_pods_are_there() -> None:
    viewer = Viewer("ada", frozenset({"own"}), sees_nodes=True)
    shown = PageState(VisibleObjects(feed(), viewer)).snapshot().decode()
    assert "h100-0" in shown
    assert "secret" not in shown
