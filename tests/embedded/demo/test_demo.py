"""The demo is a test: every step checks its own outcome, and the whole story has to come out as told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.embedded.cluster_up import Up
from tests.real_cluster.binaries import Binaries

from windlass.demo.steps import DEMO_STEPS

WINDLASS = Path(sys.executable).with_name("windlass")


def demo(*arguments: str, path: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(WINDLASS), "demo", *arguments],
        env={**os.environ, "PATH": path, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )


def test_the_whole_story_on_a_cluster_of_its_own(binaries: Binaries, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(binaries.path("kubectl"))
    done = demo(path=f"{tools}:{os.environ['PATH']}", home=tmp_path)
    assert done.returncode == 0, done.stdout
    for number, step in enumerate(DEMO_STEPS, 1):
        assert f"{number}/{len(DEMO_STEPS)}  {step.title}" in done.stdout
    assert "✗" not in done.stdout
    assert f"All {len(DEMO_STEPS)} steps passed." in done.stdout
    # What is said is what was done: every command is shown with the answer of the real kubectl.
    assert f"Commands are run with {tools / 'kubectl'}" in done.stdout
    assert re.search(r"\$ kubectl apply -f - <<EOF", done.stdout)
    assert "must be an integer" in done.stdout
    assert "tests/live/test_live_gangs.py::test_kube_scheduler_leaves_both_halfway" in done.stdout


@pytest.fixture
def no_tools(tmp_path: Path) -> str:
    """A PATH without kubectl."""
    empty = tmp_path / "empty"
    empty.mkdir()
    return str(empty)


def test_without_kubectl_the_api_answers_are_shown(windlass_up: Up, no_tools: str, tmp_path: Path) -> None:
    """On the cluster that is running."""
    given = f"--kubeconfig={windlass_up.kubeconfig}"
    done = demo(given, "--only=patch,fraction,slice,gangs", path=no_tools, home=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "there is no kubectl on the PATH" in done.stdout
    assert "pod/train created" in done.stdout
    assert "pod/train patched" in done.stdout
    assert re.search(r"^ +NAME +READY +STATUS +RESTARTS +AGE", done.stdout, re.MULTILINE)
    assert 'Error from server (Invalid): Pod "half" is invalid' in done.stdout


def test_a_step_that_fails_ends_it_with_1(windlass_up: Up, no_tools: str, tmp_path: Path) -> None:
    """The H100 nodes are closed: the patched pod can't run, and the demo says so instead of claiming it."""
    path = "/api/v1/nodes"
    for node in ("h100-0", "h100-1", "h100-2", "h100-3"):
        windlass_up.api.patch(f"{path}/{node}", {"spec": {"unschedulable": True}})
    try:
        given = f"--kubeconfig={windlass_up.kubeconfig}"
        done = demo(given, "--only=toleration", path=no_tools, home=tmp_path)
    finally:
        for node in ("h100-0", "h100-1", "h100-2", "h100-3"):
            windlass_up.api.patch(f"{path}/{node}", {"spec": {"unschedulable": None}})
    assert done.returncode == 1, done.stdout
    assert "✗" in done.stdout


def test_a_cluster_that_is_busy_is_left_alone(windlass_up: Up, no_tools: str, tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0},
    }
    windlass_up.api.create(pod)
    try:
        done = demo(f"--kubeconfig={windlass_up.kubeconfig}", path=no_tools, home=tmp_path)
    finally:
        windlass_up.api.delete("/api/v1/namespaces/default/pods/mine", gracePeriodSeconds=0)
    assert done.returncode == 2, done.stdout
    assert "has pods in the namespace default" in done.stdout


def test_unknown_steps_are_named(no_tools: str, tmp_path: Path) -> None:
    done = demo("--only=gang", path=no_tools, home=tmp_path)
    assert done.returncode == 2
    assert "unknown step 'gang'" in done.stdout
    assert "gangs" in done.stdout
