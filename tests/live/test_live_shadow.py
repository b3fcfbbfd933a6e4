"""Watching without touching: `--shadow` beside the default scheduler, and a record that plays again byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, gang, pod
from tests.real_cluster.api import until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]


def test_shadow_writes_nothing_and_says_what_really_happened(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(2)))
    api.create(pod("mine", 4), pod("theirs", 4, "default-scheduler"))
    with replica(control_plane.kubeconfig, tmp_path / "log", "--shadow") as one:
        until(lambda: "would bind default/mine" in one.last_lines())
        until(lambda: "would bind default/theirs" in one.last_lines())
        peer = control_plane.scheduler()
        peer.start()
        try:
            until(lambda: "default/theirs was bound to n" in one.last_lines(), what=one.last_lines())
        finally:
            peer.stop()
        assert set(bound(api)) == {"theirs"}
        assert "conditions" not in api.get("/api/v1/namespaces/default/pods/mine")["status"]
        events = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        assert not [one for one in events if one.get("reportingController") == "windlass.dev/scheduler"]
        assert not api.items("/apis/coordination.k8s.io/v1/namespaces/default/leases")


def test_a_record_plays_again(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelet = kubelets()
    api, folder = cluster.api, tmp_path / "record"
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(3)))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect", f"--record={folder}"):
        api.create(*gang("g", 2), *(pod(f"p{i}", 3) for i in range(4)))
        until(lambda: len(bound(api)) == 4)
        until(lambda: api.get("/api/v1/namespaces/default/pods/g-0")["status"]["phase"] == "Running")
        kubelet.finish("default", "g-0")
        until(lambda: len(bound(api, "p")) == 4)
    program = str(Path(sys.executable).with_name("windlass"))
    again = subprocess.run([program, "simulate", str(folder)], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "all reproduced" in again.stderr
    lines = (folder / "record.jsonl").read_text().splitlines()
    changed = [line.replace('"node":"n0"', '"node":"n2"') if '"bind"' in line else line for line in lines]
    assert changed != lines
    assert json.loads(lines[0])["kind"] == "SchedulerRecord"
    (folder / "record.jsonl").write_text("\n".join(changed) + "\n")
    again = subprocess.run([program, "simulate", str(folder)], capture_output=True, text=True, check=False)
    assert again.returncode == 1, "a decision that comes out otherwise is seen"
