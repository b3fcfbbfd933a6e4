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
from tests.live.scenes import GPU
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

from windlass.cli.install_observe import observe_rules

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
def observing(kubeconfig: Path) -> Iterator[str]:
    command = [str(Path(sys.executable).with_name("windlass")), "observe", "--kubeconfig", str(kubeconfig)]
    command += ["--listen", "127.0.0.1:0", "--behind-proxy"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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


def test_a_viewer_of_one_namespace_sees_it_and_the_fleets_sums(control_plane: ControlPlane, api: Api) -> None:
    with observing(control_plane.user(USER)) as address:
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
