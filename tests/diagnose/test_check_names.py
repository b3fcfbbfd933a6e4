"""`check` on names that are misspelled, that can't be read, or that don't exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.diagnose.test_check_gangs import STDIN, checked, dump, node
from tests.diagnose.test_check_guides import of
from tests.kube.fake_server import FakeServer, refusal

from windlass.diagnose.check.manifest import read_manifests
from windlass.diagnose.check.rule import check_all
from windlass.diagnose.evidence import Evidence
from windlass.dump.secret_names import existing_secrets
from windlass.kube.client import KubeClient
from windlass.kube.request import METADATA_ONLY


def job(labels: dict[str, str] | None = None, priority_class: str = "", **annotations: str) -> str:
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "train:1"}]}
    if priority_class:
        spec["priorityClassName"] = priority_class
    names = {f"windlass.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    template = {"metadata": {"labels": labels or {}}, "spec": spec}
    metadata = {"name": "train", "namespace": "lab", "annotations": names}
    return yaml.safe_dump(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (job({"kueue.x-k8s.io/queue_name": "q"}), "write kueue.x-k8s.io/queue-name"),
        (job(last_checkpont="2026-01-01T00:00:00Z"), "write windlass.dev/last-checkpoint"),
        (job(durations="2h"), "write windlass.dev/duration"),
    ],
)
def test_a_misspelled_name_is_read_by_nobody(text: str, meant: str) -> None:
    found = of(checked(text), "known-names")
    assert [(finding.level, finding.fix) for finding in found] == [("warning", meant)]
    assert found[0].line > 1


def test_names_that_are_read_and_names_of_others_are_left_alone() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-fast-admission": "true", "app": "x"}
    assert not of(checked(job(labels, duration="2h", ignore="deprecated")), "known-names")


def test_a_duration_that_cannot_be_read_stops_nothing() -> None:
    found = checked(job(duration="2 hours"))
    assert of(found, "annotation-readable")
    assert not of(found, "declared-duration")
    assert of(checked(job(duration="2h")), "declared-duration")


def test_a_priority_class_that_does_not_exist(tmp_path: Path) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    here = dump(tmp_path, node("n0"), high)
    found = of(checked(job(priority_class="hihg"), here), "priority-class-exists")
    assert [(finding.level, finding.fix) for finding in found] == [("error", "there are: high")]
    for name in ("high", "system-node-critical"):
        assert not of(checked(job(priority_class=name), here), "priority-class-exists")
    both = f"{yaml.safe_dump(high | {'metadata': {'name': 'hihg'}})}---\n{job(priority_class='hihg')}"
    assert not of(checked(both, here), "priority-class-exists")


def test_a_pull_secret_is_missing_only_if_the_cluster_was_asked() -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "imagePullSecrets": [{"name": "regcred"}]}
    metadata = {"name": "train", "namespace": "lab"}
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "regcred", "namespace": "lab"}}
    for secrets, manifests, expected in (
        ({"lab/regcred": False}, text, 1),
        ({"lab/regcred": True}, text, 0),
        ({}, text, 0),
        ({"lab/regcred": False}, f"{yaml.safe_dump(secret)}---\n{text}", 0),
    ):
        known = Evidence()
        known.secrets = secrets
        findings = check_all(read_manifests([STDIN], manifests), known, 0)
        assert len(of(findings, "pull-secret-exists")) == expected, (secrets, manifests)


@pytest.mark.anyio
async def test_of_a_secret_only_the_metadata_is_asked_for() -> None:
    accepted: list[str] = []

    def answer(request: web.Request) -> web.StreamResponse | None:
        accepted.append(request.headers["Accept"])
        if request.path.endswith("/there"):
            return web.json_response({})
        return refusal(403 if request.path.endswith("/hidden") else 404, "no")

    server = await FakeServer().start()
    server.faults.append(answer)
    try:
        async with KubeClient(server.access) as client:
            found = await existing_secrets(client, ["lab/there", "lab/gone", "lab/hidden"])
    finally:
        await server.stop()
    assert found == {"lab/there": True, "lab/gone": False}
    assert set(accepted) == {METADATA_ONLY}
