"""What controllers of other projects need beside a control plane: their kinds, and their webhooks at an address.

Used by `kueue` and `controllers`. Everything is read from the files of the projects' own modules.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

import urllib3
import yaml
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane

_POOL = urllib3.PoolManager(maxsize=4, retries=False)


def install_kinds(api: Api, folder: Path) -> None:
    """The CRDs of a folder; returns when they are served."""
    documents = [each for file in sorted(folder.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    wanted = [each for each in documents if each and each.get("kind") == "CustomResourceDefinition"]
    api.create(*wanted)
    for crd in wanted:
        until(lambda crd=crd: is_served(api, crd), 60, crd["metadata"]["name"])


def is_served(api: Api, crd: Object) -> bool:
    """Also in discovery, which lags behind: controllers end where they do not find their kinds there."""
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    served = {version["name"] for version in crd["spec"]["versions"] if version["served"]}
    if not all(api.exists(f"/apis/{group}/{version}/{plural}") for version in served):
        return False
    groups = {found["name"]: found["versions"] for found in api.get("/apis")["groups"]}
    if not served <= {found["version"] for found in groups.get(group, ())}:
        return False
    if not all(api.exists(f"/apis/{group}/{version}") for version in served):
        return False
    listed = [api.get(f"/apis/{group}/{version}")["resources"] for version in served]
    return all(any(resource["name"] == plural for resource in resources) for resources in listed)


def create_webhooks(
    plane: ControlPlane,
    name: str,
    file: Path,
    port: int,
    resources: Collection[str],
    pod_labels: Mapping[str, str] | None = None,
) -> None:
    """The webhooks of a manifest for these resources, at the controller's own port instead of a Service.

    `pod_labels`: the label of the pods that the webhooks for pods see, as the project's own patches have it.
    """
    trusted = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    for made in yaml.safe_load_all(file.read_text()):
        made["metadata"]["name"] = f"{name}-{made['metadata']['name']}"
        made["webhooks"] = [hook for hook in made["webhooks"] if hook["rules"][0]["resources"][0] in resources]
        for hook in made["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": trusted}
            if hook["rules"][0]["resources"] == ["pods"] and pod_labels:
                found = [{"key": key, "operator": operator} for key, operator in pod_labels.items()]
                hook["objectSelector"] = {"matchExpressions": found}
        plane.api.create(made)


def is_healthy(port: int) -> bool:
    try:
        return _POOL.request("GET", f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
