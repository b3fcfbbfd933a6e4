"""`windlass bench live` on a real API server, as small as it can be: the table has what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node


def test_a_small_comparison(control_plane: ControlPlane, binaries: Binaries) -> None:
    program = str(Path(sys.executable).with_name("windlass"))
    command = [
        program,
        "bench",
        "live",
        f"--kubeconfig={control_plane.kubeconfig}",
        "--nodes=8",
        "--rounds=1",
    ]
    command += [
        f"--kube-scheduler={binaries.path('kube-scheduler')}",
        "--part=backlog,gangs,memory",
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sections = {one["name"]: one["rows"] for one in json.loads(done.stdout)["sections"]}
    rows = {row["contender"]: row for row in sections["backlog"]}
    assert set(rows) == {"windlass", "kube-scheduler", "kube-scheduler, packing", "limit"}
    assert rows["windlass"]["pods"] == 24
    assert rows["windlass"]["bound"] > 0  # who packs more into eight nodes is chance
    assert rows["kube-scheduler"]["bound"] > 0
    assert rows["windlass"]["of_peer"] > 0
    assert sections["gangs"][0]["bound"] == 8
    full = {row["contender"]: row for row in sections["memory"]}
    assert set(full) == {"windlass", "kube-scheduler"}
    assert all(row["pods"] == 80 and row["peak_rss_mib"] > 0 for row in full.values())
    assert not control_plane.api.items("/api/v1/namespaces/windlass-bench/pods"), "it cleans up after itself"


def test_queued_jobs_are_written_no_more_than_the_api_needs(control_plane: ControlPlane, binaries: Binaries) -> None:
    program = str(Path(sys.executable).with_name("windlass"))
    crds = binaries.source("kueue") / "config" / "components" / "crd" / "bases"
    command = [program, "bench", "live", f"--kubeconfig={control_plane.kubeconfig}", f"--kueue-crds={crds}"]
    command += ["--part=queues", "--jobs=30", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    for row in section["rows"]:
        assert row["started"] == 30
        assert row["writes_per_change"] <= 1.2
        assert (row["conflicts"], row["duplicate_creates"]) == (0, 0)
    assert not control_plane.api.items("/apis/batch/v1/namespaces/windlass-bench/jobs"), "it cleans up after itself"


def test_a_cluster_with_nodes_of_its_own_is_refused(control_plane: ControlPlane) -> None:
    control_plane.api.create(node("somebodys"))
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, "bench", "live", f"--kubeconfig={control_plane.kubeconfig}", "--nodes=8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the cluster has nodes of its own" in done.stderr
