"""Injects faults into a running cluster, asks `why` about each at once and later, and applies the patch that it prints.

`__main__` and the tests call `play_batch` with a cluster (`clusters`). The patch is applied as a person would: the
command that `why --patch` prints, by kubectl, with the printed text as its file.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner
from tests.real_cluster.api import Api, ApiError, until
from tests.why_live.build import NO_PATCH, Fault

from windlass.cli.why import why_command
from windlass.model.unstructured import Unstructured

PREFIX = "why-"
SETTLED_SECONDS = 60
CLUSTER_KINDS = ("Node", "Lease", "ResourceFlavor", "ClusterQueue")


class Cluster(NamedTuple):
    api: Api
    kubeconfig: Path
    kubectl: str


class Verdict(NamedTuple):
    fault: Fault
    said: tuple[str, ...]
    """The codes, at once and later."""
    problem: str = ""

    @property
    def is_right(self) -> bool:
        return not self.problem


def play_batch(cluster: Cluster, faults: Sequence[Fault], folder: Path, pause: Callable[[], None]) -> list[Verdict]:
    """All of them side by side, each in a namespace of its own; everything is removed at the end."""
    made = {fault.name: fault.make(f"{PREFIX}{fault.name}") for fault in faults}
    try:
        for name, objects in made.items():
            inject(cluster.api, f"{PREFIX}{name}", objects)
        for fault in faults:
            wait_until_settled(cluster.api, fault)
        first = [ask(cluster, fault) for fault in faults]
        pause()
        answers = [(fault, [at_once, ask(cluster, fault)]) for fault, at_once in zip(faults, first, strict=True)]
        return [judge(cluster, fault, both, folder) for fault, both in answers]
    finally:
        for name, objects in made.items():
            remove(cluster.api, f"{PREFIX}{name}", objects)


def inject(api: Api, namespace: str, objects: Sequence[Unstructured]) -> None:
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for tree in objects:
        if tree["kind"] == "Event":
            tree = about_existing(api, namespace, tree)
        api.create(tree)


def about_existing(api: Api, namespace: str, event: Unstructured) -> Unstructured:
    """The event with the moment and the uid that its writer would have given it."""
    about = event["involvedObject"]
    path = f"/api/v1/namespaces/{namespace}/pods" if about["kind"] == "Pod" else "/api/v1/nodes"
    uid = api.get(f"{path}/{about['name']}")["metadata"]["uid"] if about["kind"] == "Pod" else about["name"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {**event, "involvedObject": {**about, "uid": uid}, "firstTimestamp": now, "lastTimestamp": now}


def wait_until_settled(api: Api, fault: Fault) -> None:
    """Until controllers and the scheduler have had their say about it."""
    pods = f"/api/v1/namespaces/{PREFIX}{fault.name}/pods"
    events = f"/api/v1/namespaces/{PREFIX}{fault.name}/events"

    def has_spoken() -> bool:
        own = [pod for pod in api.items(pods) if pod["metadata"]["labels"].get("app", "asked") == "asked"]
        judged = [pod for pod in own if pod["status"].get("conditions") or pod["status"].get("containerStatuses")]
        is_refused = any(event["reason"] == "FailedCreate" for event in api.items(events))
        is_silent = fault.question.startswith("job/") or fault.name in ("scheduler", "gated", "gang")
        return bool(judged) or is_refused or is_silent or any(pod["status"].get("phase") == "Failed" for pod in own)

    until(has_spoken, SETTLED_SECONDS, f"{fault.name}: a scheduler or a controller has spoken")


def ask(cluster: Cluster, fault: Fault) -> Unstructured:
    arguments = [fault.question, "-n", f"{PREFIX}{fault.name}", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    ran = CliRunner().invoke(why_command, arguments)
    assert ran.exit_code in (0, 1), f"{fault.name}: {ran.output}"
    found: Unstructured = json.loads(ran.stdout)
    return found


def judge(cluster: Cluster, fault: Fault, answers: Sequence[Unstructured], folder: Path) -> Verdict:
    said = tuple(str(answer["code"]) for answer in answers)
    wrong = next((answer for answer in answers if answer["code"] not in fault.codes), None)
    if wrong is not None:
        return Verdict(fault, said, f"expected {fault.codes[0]}: {wrong['headline']}")
    return Verdict(fault, said, unpatched(cluster, fault, folder))


def unpatched(cluster: Cluster, fault: Fault, folder: Path) -> str:
    """What is wrong with the printed patch; empty if it makes it run, or if the text says that none can."""
    namespace = f"{PREFIX}{fault.name}"
    arguments = [fault.question, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "--patch"]
    printed = CliRunner().invoke(why_command, arguments)
    if "No patch of" in printed.stderr:
        return "" if fault.remedy == NO_PATCH else f"no patch is printed: {printed.stderr}"
    file = folder / f"{fault.name}.yaml"
    file.write_text(printed.stdout)
    line = next(line for line in printed.stderr.splitlines() if "kubectl" in line)
    command = shlex.split("kubectl" + line.partition("kubectl")[2].replace("FILE", str(file)))
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([cluster.kubectl, *command[1:]], capture_output=True, text=True, env=environment, timeout=60)
    if done.returncode:
        return f"{' '.join(command)}: {done.stderr.strip()}"
    try:
        until(lambda: runs(cluster.api, namespace), SETTLED_SECONDS, "it runs")
    except AssertionError:
        return f"it does not run after {file.read_text()}"
    return ""


def runs(api: Api, namespace: str) -> bool:
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
    own = [pod for pod in pods if pod["metadata"]["name"].startswith("asked")]
    return any(pod["status"].get("phase") == "Running" for pod in own)


def remove(api: Api, namespace: str, objects: Sequence[Unstructured]) -> None:
    """Pods at once, since some have no kubelet to end them; then the namespace and what belongs to none."""
    for path in (f"/apis/apps/v1/namespaces/{namespace}/deployments", f"/apis/batch/v1/namespaces/{namespace}/jobs"):
        for item in api.items(path):
            forget(api, f"{path}/{item['metadata']['name']}")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for pod in api.items(pods):
        forget(api, f"{pods}/{pod['metadata']['name']}", gracePeriodSeconds=0)
    forget(api, f"/api/v1/namespaces/{namespace}")
    for tree in objects:
        if tree["kind"] in CLUSTER_KINDS:
            forget(api, api.path_of(tree))


def forget(api: Api, path: str, **options: object) -> None:
    try:
        api.delete(path, **options)
    except ApiError as problem:
        if problem.code != 404:
            raise
