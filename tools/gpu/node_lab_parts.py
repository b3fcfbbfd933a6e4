"""What `kubelet.py` needs on a machine that has only a GPU: programs, images, manifests, Python packages.

`prepare` makes a folder of them, and packs it into archives for a machine that takes only so much at a time. The
cluster's programs are those that the tests have built; the agent's image is the one that is shipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.real_cluster.binaries import Binaries
from tools.gpu.container import PYTHON_VERSION
from tools.gpu.node_lab import PROGRAM_IMAGE
from tools.gpu.oci_bundle import make_root

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "1-node": ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback"),
    "2-plane": ("kube-apiserver", "etcd", "kube-scheduler"),
    "3-rest": ("kube-controller-manager", "busybox", "ip"),
    "4-files": (),
}
"""Which program travels in which archive."""
MORE = {"3-rest": ("python", "tree.tar"), "4-files": ("files",)}
"""What travels with it."""
SOURCES = ("src", "tools", "tests/real_cluster", "pyproject.toml")
PACKAGES = ("cryptography", "msgspec", "pyyaml", "urllib3")
CONFIGS = {
    "default": "version: v1\nflags: {migStrategy: mixed}\n",
    "envvar": "version: v1\nflags: {plugin: {deviceListStrategy: envvar}}\n",
    "shared": "version: v1\nsharing: {timeSlicing: {renameByDefault: true, resources: "
    "[{name: nvidia.com/gpu, replicas: 4}]}}\n",
    "mps": "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n",
}
FLEET = "apiVersion: windlass.dev/v1\nkind: Fleet\nspec: {pools: [{name: node, gpus: [{model: H200, count: 1}]}]}\n"
FLEET_FILE, MACHINE = "/run/windlass/lab/fleet.yaml", "/run/windlass/lab/machine"


def prepare(target: Path, *, pack: bool) -> Path:
    """The folder; with `pack` also the archives beside it."""
    folder = target / "lab"
    for name in ("bin", "files"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _programs(folder / "bin")
    _images(folder / "files")
    _manifests(folder / "files")
    if pack:
        _python(folder)
        _sources(folder / "tree.tar")
        for name, programs in PARTS.items():
            members = [*(f"bin/{program}" for program in programs), *MORE.get(name, ())]
            _pack(folder, members, target / f"{name}.tar.xz")
    return folder


def _programs(folder: Path) -> None:
    binaries = Binaries()
    for name in (program for programs in PARTS.values() for program in programs):
        if name in ("bridge", "host-local", "loopback"):
            _copy(Path("/usr/lib/cni", name), folder / name)
        elif name == "runc":
            _runc(folder)
        elif name == "ip":
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to("busybox")
        elif name == "busybox":
            _copy(Path(shutil.which(name) or name), folder / name)
        else:
            _copy(binaries.path(name), folder / name)


def _runc(folder: Path) -> None:
    """Debian's, with the library that the other machine may lack beside it."""
    home = folder / "runc.d"
    home.mkdir(exist_ok=True)
    _copy(Path(shutil.which("runc") or "/usr/sbin/runc"), home / "runc")
    _copy(Path("/lib/x86_64-linux-gnu/libseccomp.so.2").resolve(), home / "libseccomp.so.2")
    text = '#!/bin/sh\nhome=$(dirname "$(readlink -f "$0")")/runc.d\nLD_LIBRARY_PATH=$home exec "$home/runc" "$@"\n'
    (folder / "runc").write_text(text)
    (folder / "runc").chmod(0o755)


def _images(folder: Path) -> None:
    archive = folder / "node-image.tar"
    command = [sys.executable, str(ROOT / "deploy/image"), "--role=node", "-o", str(archive)]
    subprocess.run(command, check=True)
    program = folder / "vector-add"
    source = Path(__file__).with_name("vector_add.c")
    subprocess.run(["gcc", "-O1", "-o", str(program), str(source), "-ldl"], check=True)
    sys.path.insert(0, str(ROOT / "deploy/image"))
    from archive import Image, write_archive  # type: ignore[import-not-found]
    from folders import pack  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as scratch:
        make_root(Path(scratch, "root"), program)
        pack(Path(scratch, "root"), Path(scratch, "layer.tar"))
        image = Image(PROGRAM_IMAGE, "amd64", {"PATH": "/usr/bin:/bin"}, ("/bin/vector-add",), "0:0")
        write_archive(image, [Path(scratch, "layer.tar")], folder / "vector-add-image.tar")


def _manifests(folder: Path) -> None:
    """What `windlass install node` prints, for the GPU and for a simulated one."""
    (folder / "fleet.yaml").write_text(FLEET)
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in CONFIGS.items():
            Path(scratch, name).write_text(text)
        options = ["--config", scratch, "--mount-host-root", "--image-pull-policy=Never"]
        options += ["--arg=--interval=1", "--arg=--mig-config=/run/windlass/lab/mig.yaml"]
        simulated = [f"--arg=--fleet={FLEET_FILE}", f"--arg=--root={MACHINE}"]
        for name, more in (("node.yaml", []), ("simulated.yaml", simulated)):
            main = "from windlass.cli.main import main; main()"
            command = [sys.executable, "-c", main, "install", "node", *options, *more]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            (folder / name).write_text(done.stdout)


def _python(folder: Path) -> None:
    options = [*("--target", str(folder / "python"), "--python-version", PYTHON_VERSION, "--only-binary=:all:")]
    command = [sys.executable, "-m", "pip", "install", *options, "--upgrade", "--quiet", *PACKAGES]
    subprocess.run(command, check=True)


def _sources(archive: Path) -> None:
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    subprocess.run(["tar", "-C", str(ROOT), "-cf", str(archive), *names], check=True)


def _pack(folder: Path, members: list[str], archive: Path) -> None:
    if "bin/runc" in members:
        members = [*members, "bin/runc.d"]
    tar = subprocess.Popen(["tar", "-C", str(folder), "-cf", "-", *members], stdout=subprocess.PIPE)
    with archive.open("wb") as output:
        filters = ["--x86", "--lzma2=preset=4,dict=64MiB"]
        subprocess.run(["nice", "xz", "--stdout", *filters], stdin=tar.stdout, stdout=output, check=True)
    if tar.wait() != 0:
        raise SystemExit(f"tar failed for {archive}")
    print(f"{archive}: {archive.stat().st_size >> 20} MiB")


def _copy(source: Path, target: Path) -> None:
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        shutil.copy(source, target)
    target.chmod(0o755)
