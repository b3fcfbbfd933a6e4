"""A real node: kubelet, containerd 2 and runc on this machine, joined to the control plane on loopback.

Made by the fixture `real_node`. Needs root and the Debian packages of `tools/test-packages`. One at a time on a
machine, since all kubelets share one tree of cgroups; a lock sees to it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from tests.real_cluster.api import until
from tests.real_cluster.binaries import NotAvailable
from tests.real_cluster.certificates import write_kubeconfig
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.images import PAUSE, write_images
from tests.real_cluster.service import Service, StartFailed, free_ports

_CNI_PLUGINS = Path("/usr/lib/cni")
_CONTAINERD = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{folder}/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{shim}"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = false
"""
_NETWORK = """\
{{"cniVersion": "1.0.0", "name": "windlass", "plugins": [
  {{"type": "bridge", "bridge": "wlt0", "isGateway": true,
    "ipam": {{"type": "host-local", "dataDir": "{folder}/ipam",
             "ranges": [[{{"subnet": "10.245.0.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"""


def missing_for_a_node() -> str:
    """What this machine lacks to run pods, in words; empty if nothing."""
    if os.geteuid() != 0:
        return "a real node needs root"
    lacking = [program for program in ("runc", "busybox") if shutil.which(program) is None]
    if not (_CNI_PLUGINS / "bridge").exists():
        lacking.append("containernetworking-plugins")
    return f"{', '.join(lacking)} missing: run tools/test-packages" if lacking else ""


class RealNode:
    """`containerd` and `kubelet` as services; `name` as the cluster knows it. Device plugins find the kubelet's
    socket in `device_plugins`, CDI files go into `cdi`."""

    def __init__(self, plane: ControlPlane, name: str = "real-node", *, installed: bool = False) -> None:
        """`installed`: with socket, CDI files and the kubelet's folder where a user's node has them."""
        self.plane, self.name = plane, name
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-node-"))  # short: socket paths have a limit
        self.socket = Path("/run/containerd") / "containerd.sock" if installed else self.folder / "containerd.sock"
        self.cdi = Path("/var/run/cdi") if installed else self.folder / "cdi"
        self.kubelet_root = Path("/var/lib/kubelet") if installed else self.folder / "kubelet"
        self._left = (self.folder, self.kubelet_root, self.cdi) if installed else (self.folder,)
        """What is not there any more when it has ended."""
        self.device_plugins = Path("/var/lib/kubelet/device-plugins")  # whatever the kubelet's root is
        self.containerd = self._containerd()
        self.kubelet = self._kubelet()

    def start(self) -> None:
        """Start both; returns when the cluster sees the node as Ready."""
        if _listens(self.socket):
            raise NotAvailable(f"another containerd listens on {self.socket}")
        self.containerd.start()
        self._import_images()
        self.kubelet.start()
        until(self.ready, 90, f"{self.name} is Ready: {self.kubelet.last_lines()}")

    def ready(self) -> bool:
        path = f"/api/v1/nodes/{self.name}"
        if not self.plane.api.exists(path):
            return False
        conditions = self.plane.api.get(path)["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def stop(self) -> None:
        """End both and everything that they started, and take away what they left on the machine."""
        self.kubelet.stop()
        for pid in self._shims():
            for child in _children(pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        until(lambda: not any(_children(pid) for pid in self._shims()), 20, "containers are gone")
        for pid in self._shims():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.containerd.stop()
        for folder in self._left:
            _unmount_below(folder)
        _remove_cgroups()
        with suppress(FileNotFoundError):  # without `ip` the bridge stays, and the next node uses it
            subprocess.run(["ip", "link", "delete", "wlt0"], capture_output=True)
        for folder in self._left:
            shutil.rmtree(folder, ignore_errors=True)

    def ctr(self, *arguments: str) -> str:
        """Ask containerd itself."""
        command = [str(self.plane.binaries.path("ctr")), f"--address={self.socket}", "--namespace=k8s.io"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise StartFailed(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def import_image(self, archive: Path) -> None:
        """Make an image known to the node from a Docker or OCI archive."""
        self.ctr("images", "import", "--local", "--snapshotter=native", str(archive))

    def _import_images(self) -> None:
        archive = self.folder / "images.tar"
        write_images(archive)
        self.import_image(archive)

    def _containerd(self) -> Service:
        binaries = self.plane.binaries
        for folder in (self.folder / "cni", self.folder / "ipam", self.cdi, self.socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cni" / "10-windlass.conflist").write_text(_NETWORK.format(folder=self.folder))
        config = self.folder / "containerd.toml"
        config.write_text(
            _CONTAINERD.format(
                folder=self.folder,
                socket=self.socket,
                cdi=self.cdi,
                pause=PAUSE,
                plugins=_CNI_PLUGINS,
                shim=binaries.path("containerd-shim-runc-v2"),
                runc=shutil.which("runc"),
            )
        )
        command = [str(binaries.path("containerd")), f"--config={config}"]
        return Service("containerd", command, self.folder / "containerd.log", lambda: _listens(self.socket))

    def _kubelet(self) -> Service:
        port, health = free_ports(2)
        plane = self.plane
        pair = plane.authority.client(f"system:node:{self.name}", ["system:nodes"])
        kubeconfig = self.folder / "kubelet.kubeconfig"
        write_kubeconfig(kubeconfig, plane.url, plane.authority.certificate, pair)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(plane.authority.certificate)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "port": port,
            "healthzPort": health,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": str(self.folder / "logs"),
            "syncFrequency": "1s",
            "nodeStatusUpdateFrequency": "1s",
            "shutdownGracePeriod": "0s",
        }
        file = self.folder / "kubelet.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [
            str(plane.binaries.path("kubelet")),
            f"--config={file}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self.kubelet_root}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
            f"--hostname-override={self.name}",
        ]
        return Service("kubelet", command, self.folder / "kubelet.log", lambda: _answers(health))

    def _shims(self) -> list[int]:
        """The runtime's helpers of this node: they outlive containerd, and name its socket on their command line."""
        return [pid for pid, line in _processes() if "containerd-shim" in line and str(self.socket) in line]


@contextmanager
def only_node() -> Iterator[None]:
    """Wait until no other test process on this machine runs a real node."""
    with (Path(tempfile.gettempdir()) / "windlass-real-node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def real_node_on(plane: ControlPlane, *, installed: bool = False) -> Iterator[RealNode]:
    """A running node, and nothing left of it afterwards."""
    lacking = missing_for_a_node()
    if lacking:
        raise NotAvailable(lacking)
    with only_node():
        node = RealNode(plane, installed=installed)
        try:
            node.start()
            yield node
        finally:
            node.stop()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _processes() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (
                int(folder.name),
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
            )


def _children(pid: int) -> list[int]:
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in tasks.read_text().split()]
    return found


def _unmount_below(folder: Path) -> None:
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted((p for p in points if p.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], capture_output=True)


def _remove_cgroups() -> None:
    for top in (*Path("/sys/fs/cgroup").glob("*/kubepods"), Path("/sys/fs/cgroup/kubepods")):
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
