"""Run times, collected live: from pods that end, through an object of the cluster, to the plans of the next leader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, condition, pod, pods
from tests.live.test_live_queues import install_crds, queues
from tests.real_cluster.api import Api, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
HISTORY = "/apis/windlass.dev/v1/namespaces/default/runtimehistories/main"


def counted(api: Api) -> int:
    """Runs that the history of the queue knows of."""
    if not api.exists(HISTORY):
        return 0
    return sum(count for one in api.get(HISTORY)["periods"] for count in one["runs"].values())


def run_and_end(api: Api, kubelet: FakeKubelet, name: str, phase: str = "Succeeded") -> None:
    api.create(pod(name, 1, labels=QUEUE))
    until(lambda: pods(api)[name]["status"].get("phase") == "Running", 60, f"{name} runs")
    kubelet.finish("default", name, phase)


def test_the_next_leader_plans_with_what_the_last_one_saw(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelet, api, folder = kubelets(), cluster.api, tmp_path / "record"
    install_crds(api)
    api.create(node("n0", {GPU: "8"}), *queues(8))
    lease = ("--lease-seconds=3", "--lease-namespace=default")
    with replica(cluster.kubeconfig, tmp_path / "first", *lease) as first:
        until(lambda: first.leads, 60, "one leads")
        run_and_end(api, kubelet, "failed", "Failed")
        run_and_end(api, kubelet, "a")
        run_and_end(api, kubelet, "b")
        until(lambda: counted(api) == 2, 90, f"two runs are counted\n{first.last_lines()}")
        (owner,) = api.get(HISTORY)["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("LocalQueue", "main")
        # As if it had been collected for weeks: what the test itself runs takes a second.
        *older, last = api.get(HISTORY)["periods"]
        api.patch(HISTORY, {"periods": [*older, {**last, "runs": {**last["runs"], "3584": 100}}]})
        with replica(cluster.kubeconfig, tmp_path / "second", *lease, f"--record={folder}") as second:
            first.kill()
            until(lambda: second.leads, 90, f"the other one leads\n{second.last_lines()}")
            run_and_end(api, kubelet, "c")
            until(lambda: counted(api) == 103, 90, f"it is added\n{second.last_lines()}")
            api.create(pod("long", 8, labels=QUEUE))
            until(lambda: bound(api, "long"), 60, second.last_lines)
            api.create(pod("next", 8, labels=QUEUE))

            def said() -> str:
                return str((condition(pods(api)["next"]) or {}).get("message", ""))

            until(lambda: "planned to start at" in said(), 60, f"a start is planned\n{second.last_lines()}")
    program = str(Path(sys.executable).with_name("windlass"))
    again = subprocess.run([program, "simulate", str(folder)], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "all reproduced" in again.stderr
    assert "earlier runs of queue default/main" in (folder / "record.jsonl").read_text()
