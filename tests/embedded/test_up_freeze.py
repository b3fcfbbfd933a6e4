"""`windlass freeze` and `windlass handover` on a running `windlass up`, as a person gives them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.cluster_up import Up, up
from tests.live.scenes import bound, pod
from tests.real_cluster.api import Api, until

CONFIG_MAP = "/api/v1/namespaces/windlass-system/configmaps/windlass-freeze"


def windlass(kubeconfig: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, arguments[0], f"--kubeconfig={kubeconfig}", *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done


def small(name: str) -> dict[str, object]:
    return pod(name, gpus=0, scheduler="default-scheduler", tolerations=[{"operator": "Exists"}])


def versions(api: Api) -> dict[str, str]:
    """Of everything that the scheduler writes."""
    paths = ("/api/v1/pods", "/apis/events.k8s.io/v1/events")
    found = [item for path in paths for item in api.items(path)]
    return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in found}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up")) as running:
        yield running


def test_freeze_status_and_off(cluster: Up) -> None:
    api, kubeconfig = cluster.api, cluster.kubeconfig
    assert "never frozen" in windlass(kubeconfig, "freeze", "--status").stdout
    said = windlass(kubeconfig, "freeze", "--reason", "a test").stdout
    assert "windlass-system: frozen" in said
    assert "a test" in said
    first = json.loads(windlass(kubeconfig, "freeze", "--status", "-o", "json").stdout)["namespaces"][0]
    assert (first["state"], first["reason"]) == ("frozen", "a test")
    assert first["by"]
    time.sleep(5)
    before = versions(api)
    api.create(*(small(f"held-{number}") for number in range(20)))
    time.sleep(5)
    after = versions(api)
    assert {uid: after[uid] for uid in before} == before
    assert bound(api, "held-") == {}
    again = json.loads(windlass(kubeconfig, "freeze", "-o", "json").stdout)["namespaces"][0]
    assert again["since"] == first["since"], "it is frozen since the first time"
    said = windlass(kubeconfig, "freeze", "--off").stdout
    assert "windlass-system: running" in said
    until(lambda: len(bound(api, "held-")) == 20, 30, "all goes on")
    assert api.get(CONFIG_MAP)["data"]["state"] == "running"


def test_handover_and_back(cluster: Up) -> None:
    api, kubeconfig = cluster.api, cluster.kubeconfig
    said = windlass(kubeconfig, "handover", "--scheduler-name=windlass", "--image=kube-scheduler:test").stderr
    assert "schedules the pods of windlass from now on" in said
    deployment = api.get("/apis/apps/v1/namespaces/windlass-system/deployments/windlass-handover")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "kube-scheduler:test"
    assert api.get(CONFIG_MAP)["data"] | {"since": "", "by": ""} == {
        "state": "frozen",
        "since": "",
        "by": "",
        "reason": "handed over to kube-scheduler",
    }
    api.create(small("meanwhile"))
    assert "Windlass schedules again" in windlass(kubeconfig, "handover", "--back").stderr
    until(lambda: bound(api, "meanwhile"), 30, "Windlass goes on")
    left = api.items("/apis/apps/v1/namespaces/windlass-system/deployments")
    assert left == []


def test_plan_of_the_live_cluster(cluster: Up) -> None:
    cluster.api.create(pod("too-large", gpus=99))
    done = windlass_plan(cluster.kubeconfig)
    held = [decision for decision in done["decisions"] if decision.get("workload") == "default/too-large"]
    assert [decision["decision"] for decision in held] == ["hold"], done["decisions"]


def test_defragmentation_of_the_live_cluster(cluster: Up) -> None:
    done = windlass_plan(cluster.kubeconfig, "defrag")
    assert (done["kind"], done["moves"]) == ("DefragPlan", []), "nothing waits that moves would let in"


def windlass_plan(kubeconfig: Path, what: str = "schedule") -> dict[str, Any]:
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, "plan", what, f"--kubeconfig={kubeconfig}", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_pods_that_only_windlass_keeps_within_their_quota_are_not_handed_over(cluster: Up) -> None:
    queued = pod("queued", gpus=1, scheduler="windlass", labels={"kueue.x-k8s.io/queue-name": "team"})
    cluster.api.create(queued)
    said = windlass(cluster.kubeconfig, "handover", "--scheduler-name=windlass", code=2).stderr
    assert "1 waiting pods belong to a queue and have no scheduling gate, such as default/queued" in said
    assert cluster.api.get(CONFIG_MAP)["data"]["state"] == "running", "nothing was done"
