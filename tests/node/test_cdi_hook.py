"""The hook that is laid onto hosts without NVIDIA's: links, the loader's cache, and nothing outside the container."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.node import driver_layouts as layouts
from tests.node.driver_layouts import add, link

from windlass.node.cdi_hooks import SCRIPT, find_hook_program
from windlass.node.host_root import HostRoot
from windlass.node.ld_cache import read_ld_cache

FOLDER = "/usr/lib/x86_64-linux-gnu"
LINK = f"libcuda.so.580.159.04::{FOLDER}/libcuda.so.1"


class Container:
    def __init__(self, folder: Path) -> None:
        self.folder, self.bundle, self.root = folder, folder / "bundle", folder / "bundle/rootfs"
        self.root.mkdir(parents=True)
        # A value can't be taken for the key: its quotes are escaped.
        forged = '"root":{"path":"/"}'
        config = {
            "ociVersion": "1.2.0",
            "process": {"args": ["root"], "env": [forged, f"X={forged}"], "cwd": "/"},
            "root": {"path": "rootfs", "readonly": True},
            "annotations": {"root": "/", "x": forged},
        }
        (self.bundle / "config.json").write_text(json.dumps(config, separators=(",", ":")))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        state = {"ociVersion": "1.2.0", "id": "x", "pid": 1, "bundle": str(self.bundle), "annotations": {"bundle": "/"}}
        return subprocess.run(
            ["/bin/sh", str(SCRIPT), *arguments], input=json.dumps(state), capture_output=True, text=True, check=False
        )

    def succeed(self, *arguments: str) -> None:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


class TestLinks:
    def test_are_made_with_their_folders(self, container: Container) -> None:
        container.succeed("create-symlinks", "--link", LINK, "--link", f"../a.so::{FOLDER}/gbm/b.so")
        assert (container.root / f"{FOLDER[1:]}/libcuda.so.1").readlink() == Path("libcuda.so.580.159.04")
        assert (container.root / f"{FOLDER[1:]}/gbm/b.so").readlink() == Path("../a.so")

    def test_replace_what_the_image_has(self, container: Container) -> None:
        add(container.root, f"{FOLDER[1:]}/libcuda.so.1", "a stub")
        container.succeed("create-symlinks", "--link", LINK)
        assert (container.root / f"{FOLDER[1:]}/libcuda.so.1").is_symlink()

    @pytest.mark.parametrize("target", ["/elsewhere", "../../../../../../elsewhere", "elsewhere"])
    def test_of_the_image_never_lead_out(self, container: Container, target: str) -> None:
        """An image whose folder of libraries is a link to a folder of the host."""
        outside = Path(f"{container.folder}/elsewhere")
        outside.mkdir()
        link(container.root, "usr", target if target != "/elsewhere" else str(outside))
        container.run("create-symlinks", "--link", LINK)
        assert list(outside.iterdir()) == []
        found = list(container.root.rglob("libcuda.so.[1]"))  # a pattern, since the link leads nowhere
        assert len(found) == 1, "it is made where the container would find it"

    def test_a_merged_usr_is_followed(self, container: Container) -> None:
        (container.root / "usr/lib64").mkdir(parents=True)
        link(container.root, "lib64", "/usr/lib64")
        container.succeed("create-symlinks", "--link", "libcuda.so.5::/lib64/libcuda.so.1")
        assert (container.root / "usr/lib64/libcuda.so.1").is_symlink()

    def test_a_loop_is_an_error(self, container: Container) -> None:
        link(container.root, "usr", "usr")
        assert container.run("create-symlinks", "--link", LINK).returncode != 0


def shared_library(folder: Path, path: str) -> None:
    """A real library with the name under which it is asked for."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", str(file), "-x", "c", "/dev/null"]
    subprocess.run(command, check=True)


class TestCache:
    def cached(self, container: Container) -> list[str]:
        entries = read_ld_cache(container.root / "etc/ld.so.cache")
        return [path for name, path in entries if name == "libcuda.so.1"]

    def test_has_the_driver(self, container: Container) -> None:
        shared_library(container.root, "usr/local/nvidia/lib64/libcuda.so.580.159.04")
        container.succeed("update-ldcache", "--folder", "/usr/local/nvidia/lib64")
        assert self.cached(container) == ["/usr/local/nvidia/lib64/libcuda.so.1"]
        (conf,) = (container.root / "etc/ld.so.conf.d").iterdir()
        assert conf.read_text() == "/usr/local/nvidia/lib64\n", "a later ldconfig in the container finds it too"

    @pytest.mark.parametrize(("host", "first"), [("535.1", "/usr/local/cuda/compat"), ("580.1", f"{FOLDER}")])
    def test_newer_libraries_of_the_image_go_first(self, container: Container, host: str, first: str) -> None:
        shared_library(container.root, f"usr/lib/x86_64-linux-gnu/libcuda.so.{host}")
        shared_library(container.root, "usr/local/cuda/compat/libcuda.so.570.86")
        container.succeed("enable-cuda-compat", f"--host-driver-version={host}")
        container.succeed("update-ldcache", "--folder", FOLDER)
        assert self.cached(container)[0] == f"{first}/libcuda.so.1"

    def test_a_folder_with_other_characters_is_refused(self, container: Container) -> None:
        assert container.run("update-ldcache", "--folder", "/a;rm").returncode != 0


@pytest.mark.parametrize("arguments", [(), ("chmod",)])
def test_an_unknown_command_is_an_error(container: Container, arguments: tuple[str, ...]) -> None:
    done = container.run(*arguments)
    assert done.returncode == 1
    assert "unknown command" in done.stderr


class TestProgram:
    def find(self, folder: Path, configured: str = "/usr/bin/nvidia-ctk") -> tuple[str, tuple[str, ...], set[str]]:
        found = find_hook_program(HostRoot("/", files=folder), configured, folder / "run")
        assert found is not None
        return found.path, found.command, set(found.hooks)

    def test_is_nvidias_where_it_has_the_hooks(self, tmp_path: Path) -> None:
        add(tmp_path, "usr/bin/nvidia-ctk", f"\0{layouts.HOOKS}\0")
        hooks = set(layouts.HOOKS.split())
        assert self.find(tmp_path) == ("/usr/bin/nvidia-ctk", ("nvidia-ctk", "hook"), hooks)
        add(tmp_path, "usr/bin/nvidia-cdi-hook", f"\0{layouts.HOOKS}\0")
        assert self.find(tmp_path, "")[:2] == ("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook",))

    def test_is_found_behind_the_operators_wrapper(self, tmp_path: Path) -> None:
        add(tmp_path, "usr/local/nvidia/toolkit/nvidia-cdi-hook", "#!/bin/sh\nexec nvidia-cdi-hook.real")
        add(tmp_path, "usr/local/nvidia/toolkit/nvidia-cdi-hook.real", f"\0{layouts.HOOKS}\0")
        assert self.find(tmp_path)[0] == "/usr/local/nvidia/toolkit/nvidia-cdi-hook"

    def test_is_ours_where_the_installed_one_lacks_a_hook(self, tmp_path: Path) -> None:
        add(tmp_path, "usr/bin/nvidia-ctk", "\0chmod create-symlinks\0")
        add(tmp_path, "bin/sh")
        path, command, _ = self.find(tmp_path)
        assert (path, command[0]) == ("/bin/sh", "sh")
        assert Path(command[1]).read_bytes() == SCRIPT.read_bytes()

    def test_is_none_on_a_host_without_a_shell(self, tmp_path: Path) -> None:
        assert find_hook_program(HostRoot("/", files=tmp_path), "/usr/bin/nvidia-ctk", tmp_path) is None
