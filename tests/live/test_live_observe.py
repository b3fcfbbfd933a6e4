"""`windlass observe` on a real API server: with the rights that it needs and no others, and viewers by real RBAC."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.rights import Right
from tests.live.rights import asked as rights_asked
from tests.live.scenes import GPU
from tests.live.test_live_queues import install_crds
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

from windlass.cli.install_observe import observe_rules
from windlass.cli.install_operator_crds import operator_crds

USER = "observe-under-test"
RBAC = "rbac.authorization.k8s.io"


def role(role_kind: str, role_name: str, rules: list[Any], **subject: str) -> list[dict[str, Any]]:
    """A role and its binding; in a namespace where the subject's is given."""
    scope = {"namespace": subject["namespace"]} if role_kind == "Role" else {}
    meta, version = {"name": role_name, **scope}, f"{RBAC}/v1"
    group = {"apiGroup": RBAC} if subject["kind"] == "User" else {}
    return [
        {"apiVersion": version, "kind": role_kind, "metadata": meta, "rules": rules},
        {
            "apiVersion": version,
            "kind": f"{role_kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role_name},
            "subjects": [{**subject, **group}],
        },
    ]


def pod(namespace: str, where: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: "2"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{namespace}-pod", "namespace": namespace},
        "spec": {"nodeName": where, "containers": [container], "automountServiceAccountToken": False},
    }


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    found = control_plane.api
    found.create(node("gpu-1", {GPU: "8"}))
    listing = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    nodes = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]}]
    for name in ("own", "secret"):
        found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for account in ("default", "viewer", "admin", "nobody"):
            meta = {"name": account, "namespace": name}
            # The controller manager makes `default`, sooner or later.
            with contextlib.suppress(ApiError):
                found.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
            assert found.exists(f"/api/v1/namespaces/{name}/serviceaccounts/{account}")
        found.create(pod(name, "gpu-1"))
    found.create(*role("Role", "viewer", listing, kind="ServiceAccount", name="viewer", namespace="own"))
    found.create(*role("ClusterRole", "all", nodes, kind="ServiceAccount", name="admin", namespace="own"))
    found.create(*role("ClusterRole", "observe", observe_rules(), kind="User", name=USER))
    return found


def token_of(api: Api, account: str) -> str:
    path = f"/api/v1/namespaces/own/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.post(path, body)["status"]["token"])


@contextlib.contextmanager
def observing(kubeconfig: Path, log: Path, *arguments: str) -> Iterator[str]:
    command = [str(Path(sys.executable).with_name("windlass")), "observe", "--kubeconfig", str(kubeconfig)]
    command += ["--listen", "127.0.0.1:0", "--behind-proxy", "--log-format=json", "--log-level=debug", *arguments]
    with log.open("w") as kept:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=kept, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        assert process.wait(30) == 0


def asked(address: str, token: str) -> dict[str, Any]:
    """The first picture of the page."""
    request = urllib.request.Request(f"{address}/live", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: ") and b"nodes" in line:
                found: dict[str, Any] = json.loads(line[6:])
                return found
    raise AssertionError("no picture")


def status_of(address: str, path: str, token: str = "", method: str = "GET") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{address}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_the_rights_are_just_enough(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    """With every kind that it shows there, nothing is refused, and there is no right that it does not use."""
    install_crds(api)
    api.create(*operator_crds())
    log = tmp_path / "log"
    with observing(control_plane.user(USER), log) as address:
        until(lambda: asked(address, token_of(api, "viewer")), 60)
        assert status_of(address, "/readyz") == 200, "probes come without a token"
        assert status_of(address, "/faults", token_of(api, "admin"), "POST") == 403
        granted = {
            (group, resource, verb)
            for rule in observe_rules()
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

        def used() -> set[Right]:
            return {right[:3] for right, _ in rights_asked(log.read_text())}

        until(lambda: used() >= granted, 60, "a right that nothing needs")
    refused = {right for right, code in rights_asked(log.read_text()) if code == 403}
    assert not refused
    assert used() <= granted
    assert {verb for _, _, verb in granted} == {"list", "watch", "create"}
    assert {resource for _, resource, verb in granted if verb == "create"} == {"tokenreviews", "subjectaccessreviews"}


def test_changes_and_repairs_are_watched_as_soon_as_their_kinds_are_there(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    api.create(*operator_crds())
    repair = {
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "GPURepair",
        "metadata": {"name": "gpu-1-3"},
        "spec": {"node": "gpu-1", "device": 3, "fault": "Xid 79"},
    }
    collection = "/apis/windlass.dev/v1alpha1/gpurepairs"
    until(lambda: api.exists(collection), 30)
    api.post(collection, repair)
    with observing(control_plane.user(USER), tmp_path / "log") as address:
        shown = until(lambda: asked(address, token_of(api, "admin")), 30)
        assert [(found["name"], found["fault"], found["needs"]) for found in shown["repairs"]] == [
            ("gpu-1-3", "Xid 79", "time")
        ]
        assert "gpu-1-3" not in json.dumps(asked(address, token_of(api, "viewer"))), "who may not list nodes"


def test_a_viewer_of_one_namespace_sees_it_and_the_fleets_sums(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    with observing(control_plane.user(USER), tmp_path / "log") as address:
        everything = until(lambda: asked(address, token_of(api, "admin")), 30)
        assert {job["key"] for job in everything["jobs"]} == {"own/Pod/own-pod", "secret/Pod/secret-pod"}
        assert everything["nodes"][0]["name"] == "gpu-1"
        own = asked(address, token_of(api, "viewer"))
        assert {job["key"] for job in own["jobs"]} == {"own/Pod/own-pod"}
        assert "secret" not in json.dumps(own)
        assert "gpu-1" not in json.dumps(own)
        for found in (everything, own):
            assert sum(bool(gpu.get("uses")) for gpu in found["nodes"][0]["gpus"]) == 4
        for token, status in ((token_of(api, "nobody"), 403), ("forged", 401)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                asked(address, token)
            assert refused.value.code == status
