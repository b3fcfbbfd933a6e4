"""The image of the project's own script on a real kubelet, in the Deployment that `windlass install` prints and in the
DaemonSet that `windlass install node` prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.live.scenes import pod
from tests.node.machines import FLEET
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode
from tests.real_cluster.service_proxy import service_proxy

from windlass.cli.install import install
from windlass.cli.install_manifests import InstallOptions, all_objects
from windlass.cli.install_node_manifests import HOST_PATHS

ROOT = Path(__file__).parents[2]
SYSTEM = "/api/v1/namespaces/windlass-system/pods"
AGENTS = "/api/v1/namespaces/windlass-node/pods"
PACKAGE = "opt/windlass/windlass/placement/kernels"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/windlass-system/leases/windlass-scheduler"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The archive of each role; what they are made from is kept in the user's cache, so that only what changed is made
    again."""
    folder = tmp_path_factory.mktemp("image")
    archives = {role: folder / f"{role}.tar" for role in ("scheduler", "node")}
    for role, archive in archives.items():
        command = [sys.executable, str(ROOT / "deploy" / "image"), f"--role={role}", "-o", str(archive)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return list(archives.values())


@pytest.fixture
def field(control_plane: ControlPlane, real_node: RealNode, images: list[Path]) -> Iterator[Api]:
    """A cluster that has the images, where pods get tokens and find the API server; kube-scheduler places them."""
    for image in images:
        real_node.import_image(image)
    peer = control_plane.scheduler()
    with control_plane.service_accounts(), service_proxy(control_plane):
        until(real_node.ready, 60, "the node is seen again")
        peer.start()
        try:
            yield control_plane.api
        finally:
            peer.stop()


def pods_of(api: Api, path: str, component: str) -> list[Object]:
    return api.items(path, labelSelector=f"app.kubernetes.io/component={component}")


def replicas(api: Api) -> list[Object]:
    return pods_of(api, SYSTEM, "scheduler")


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
        shipped, used = kernels(process, f"{PACKAGE}/__pycache__"), kernels(process, "tmp")
        assert shipped
        assert used == shipped, "it compiled nothing: its kernels came with the image"


@pytest.fixture
def lab(real_node: RealNode) -> Iterator[Path]:
    """A folder that the agent's pod sees, with the Fleet that its GPUs are simulated from."""
    new = [Path(path) for path in HOST_PATHS.values() if not Path(path).exists()]
    folder = Path(HOST_PATHS["state"], "lab")
    folder.mkdir(parents=True)
    (folder / "fleet.yaml").write_text(FLEET)
    yield folder
    real_node.kubelet.stop()
    # Every kubelet of the machine keeps its books here: the next one is not to inherit this one's.
    (real_node.device_plugins / "kubelet_internal_checkpoint").unlink(missing_ok=True)
    shutil.rmtree(folder)
    for path in new:
        shutil.rmtree(path, ignore_errors=True)


def test_the_printed_daemon_set_advertises_gpus_on_a_real_kubelet(field: Api, real_node: RealNode, lab: Path) -> None:
    """The image's own user may write to no folder of the host, so the pod has to say that it is root."""
    api, path = field, f"/api/v1/nodes/{real_node.name}"
    arguments = (f"--arg=--fleet={lab}/fleet.yaml", f"--arg=--root={lab}/machine")
    done = CliRunner().invoke(install, ["node", *arguments], catch_exceptions=False)
    for one in yaml.safe_load_all(done.stdout):
        api.create(one)
    api.patch(path, {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}, "merge")

    def agents() -> list[Object]:
        return pods_of(api, AGENTS, "node")

    def advertised() -> bool:
        restarted = [one for one in agents() for each in statuses(one) if each["restartCount"]]
        ended = [said(api, one, previous=True) for one in restarted]
        assert not ended, f"the agent has ended: {ended}"
        return api.get(path)["status"]["allocatable"].get("nvidia.com/gpu") == "8"

    until(advertised, 120, "the kubelet advertises 8 GPUs")
    (agent,) = agents()
    (status,) = statuses(agent)
    process = process_of(real_node, status["containerID"])
    assert user_of(process) == ("0", "0")
    labels = until(lambda: labels_of(api, path).get("nvidia.com/gpu.count"), 60, "the node is labelled")
    assert labels == "8", said(api, agent)
    assert [each["restartCount"] for each in statuses(agents()[0])] == [0], said(api, agent)


def statuses(one: Object) -> list[Object]:
    return list(one["status"].get("containerStatuses") or ())


def labels_of(api: Api, path: str) -> Object:
    return dict(api.get(path)["metadata"].get("labels") or {})


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


def kernels(process: Path, folder: str) -> set[str]:
    return {each.name for each in (process / "root" / folder).rglob("*.nbc")}
