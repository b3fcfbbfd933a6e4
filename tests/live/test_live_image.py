"""The scheduler's image, built by the project's own script, on a real kubelet in the Deployment that `windlass install`
prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.live.scenes import pod
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode
from tests.real_cluster.service_proxy import service_proxy

from windlass.cli.install_manifests import InstallOptions, all_objects

SYSTEM = "/api/v1/namespaces/windlass-system/pods"
PACKAGE = "opt/windlass/windlass/placement/kernels"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/windlass-system/leases/windlass-scheduler"


@pytest.fixture
def field(control_plane: ControlPlane, real_node: RealNode, scheduler_image: Path) -> Iterator[Api]:
    """A cluster that has the image, where pods get tokens and find the API server; kube-scheduler places them."""
    real_node.import_image(scheduler_image)
    peer = control_plane.scheduler()
    with control_plane.service_accounts(), service_proxy(control_plane):
        until(real_node.ready, 60, "the node is seen again")
        peer.start()
        try:
            yield control_plane.api
        finally:
            peer.stop()


def replicas(api: Api) -> list[Object]:
    return api.items(SYSTEM, labelSelector="app.kubernetes.io/component=scheduler")


def is_ready(one: Object) -> bool:
    found = one["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def said(api: Api, one: Object, **query: object) -> str:
    path = "/api/v1/namespaces/{namespace}/pods/{name}/log"
    return str(api.get(path.format_map(one["metadata"]), **query)["text"])


def told(api: Api) -> str:
    """What there is to know of replicas that don't become ready."""
    events = api.items("/api/v1/namespaces/windlass-system/events")
    lines = [f"{one['reason']}: {one.get('message', '')}" for one in events]
    return yaml.safe_dump([one["status"] for one in replicas(api)]) + "\n".join(lines)


def test_the_printed_deployment_runs_on_a_real_kubelet(field: Api, real_node: RealNode) -> None:
    api = field
    for one in all_objects(InstallOptions()):
        api.create(one)
    until(lambda: [is_ready(one) for one in replicas(api)] == [True, True], 180, told(api))
    holder = until(lambda: api.get(LEASE)["spec"].get("holderIdentity"))
    leaders = [one for one in replicas(api) if holder.startswith(one["metadata"]["name"])]
    assert len(leaders) == 1, "one of them leads"
    until(lambda: api.exists("/api/v1/namespaces/default/serviceaccounts/default"))
    sleeper = pod("sleeper", 0, restartPolicy="Never")
    container = {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1"]}
    sleeper["spec"]["containers"][0] |= container
    api.create(sleeper)
    path = "/api/v1/namespaces/default/pods/sleeper"
    until(lambda: api.get(path)["status"].get("phase") == "Succeeded", 60, said(api, leaders[0]))
    assert api.get(path)["spec"]["nodeName"] == real_node.name
    for one in replicas(api):
        (status,) = one["status"]["containerStatuses"]
        assert (status["restartCount"], status["ready"]) == (0, True), said(api, one)
        process = process_of(real_node, status["containerID"])
        assert user_of(process) == ("65532", "65532"), "it runs as nobody in particular"
        assert "ro" in root_mount(process), "its root can't be written to"
        assert any(f"{PACKAGE}/native/" in line for line in mapped_files(process)), "its kernels came with the image"
        assert not any("llvm" in line.lower() for line in mapped_files(process)), "it has no compiler"


def process_of(real_node: RealNode, container: str) -> Path:
    """The container's own process, as this machine's kernel sees it."""
    name = container.partition("//")[2]
    (line,) = [each for each in real_node.ctr("tasks", "list").splitlines() if name in each]
    return Path("/proc") / line.split()[1]


def user_of(process: Path) -> tuple[str, str]:
    lines = (process / "status").read_text().splitlines()
    status = dict(each.split(":", 1) for each in lines if ":" in each)
    return status["Uid"].split()[0], status["Gid"].split()[0]


def root_mount(process: Path) -> list[str]:
    mounts = [each.split() for each in (process / "mounts").read_text().splitlines()]
    (options,) = [each[3].split(",") for each in mounts if each[1] == "/"]
    return options


def mapped_files(process: Path) -> list[str]:
    return (process / "maps").read_text().splitlines()
