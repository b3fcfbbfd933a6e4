"""`deploy/Containerfile` builds with buildah, from a base of Debian's packages that is made here, and its image holds
what the image holds that is made without a container engine."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "localhost/windlass-base:1"
PACKAGES = ("python3", "python3-venv", "dash", "coreutils", "findutils", "libstdc++6")
"""What an image of Python has beside Python, as far as the Containerfile uses it."""
OF_THIS_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf")
"""By which pip finds its index."""
NOTES = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")
"""Who has installed a library, and from where."""


class Buildah:
    def __init__(self, folder: Path) -> None:
        storage = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs")
        self.command = ("nice", "buildah", *storage)

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, f"{arguments}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout.strip()


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    buildah = Buildah(tmp_path / "buildah")
    yield buildah
    buildah("rm", "--all")
    buildah("rmi", "--all", "--force")


def make_base(buildah: Buildah, folder: Path) -> None:
    """Debian's Python for an empty machine; no script of a package runs."""
    archives, tree = folder / "archives", folder / "tree"
    (archives / "partial").mkdir(parents=True)
    (folder / "status").touch()
    options = (f"-oDir::State::status={folder}/status", f"-oDir::Cache::archives={archives}", "-oDebug::NoLocking=true")
    apt = ("apt-get", "-qq", *options, "-oAPT::Install-Recommends=false", "-oAPT::Sandbox::User=root")
    subprocess.run([*apt, "--yes", "--download-only", "install", *PACKAGES], check=True, capture_output=True)
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(tree)], check=True)
    for name in ("tmp", "root", "proc", "sys", "dev"):
        (tree / name).mkdir(exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    for path in filter(os.path.exists, OF_THIS_MACHINE):
        (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tree / path[1:])
    container = buildah("from", "scratch")
    buildah("copy", container, str(tree), "/")
    buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
    buildah("commit", container, BASE)


def unpack(archive: Path, folder: Path) -> Path:
    """The libraries of an image that `deploy/image` has made: layers, one over the other."""
    with tarfile.open(archive) as image:
        image.extractall(folder / "image", filter="data")
    for layer in sorted((folder / "image").rglob("*"), key=lambda file: file.name):
        if layer.is_file() and tarfile.is_tarfile(layer):
            with tarfile.open(layer) as tar:
                wanted = [member for member in tar if member.name.startswith("opt/windlass")]
                tar.extractall(folder / "root", wanted, filter="data")
    return folder / "root/opt/windlass"


def files_of(folder: Path) -> set[str]:
    """Bytecode is not counted: the Pythons differ in when they look at it again."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts and path.name not in NOTES}


@pytest.mark.parametrize(
    ("role", "command", "says"),
    [
        ("node", ("node", "run", "--help"), "device plugin"),
        ("scheduler", ("scheduler", "--help"), "Schedule a real cluster"),
    ],
)
def test_both_ways_make_the_same_image(
    buildah: Buildah, role: str, command: tuple[str, ...], says: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    make_base(buildah, tmp_path / "base")
    image = f"localhost/windlass-{role}:1"
    arguments = ("--build-arg", f"BASE={BASE}", "--build-arg", f"ROLE={role}", "-t", image, ".")
    # chroot: a build needs no namespaces of its own, which a machine may not give.
    buildah("build", "--isolation", "chroot", "--network", "host", "-f", "deploy/Containerfile", *arguments)
    container = buildah("from", image)
    built = Path(buildah("mount", container)) / "opt/windlass"
    shipped = unpack(request.getfixturevalue(f"{role}_image"), tmp_path)
    assert files_of(built) == files_of(shipped)
    _, different, unreadable = filecmp.cmpfiles(built, shipped, sorted(files_of(built)), shallow=False)
    assert (different, unreadable) == ([], [])
    run = ("run", "--isolation", "chroot", container, "--")
    assert buildah(*run, "id", "-u") == "65532"
    assert says in buildah(*run, "windlass", *command)


def test_an_image_does_not_say_where_it_was_made(node_image: Path, tmp_path: Path) -> None:
    shipped = unpack(node_image, tmp_path)
    notes = [*shipped.rglob("direct_url.json"), *shipped.rglob("uv_cache.json"), *shipped.glob(".lock")]
    assert notes == []
    assert "direct_url.json" not in (next(shipped.glob("windlass-*.dist-info")) / "RECORD").read_text()
