"""A container without a driver inside, made by runc from our CDI specs, finds the driver and computes.

The driver is a library that pretends; runc, the hooks, ldconfig and the program, which opens libcuda.so.1 as frameworks
do, are real. Only the GPU is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.node import driver_layouts as layouts
from tests.node.driver_layouts import LAYOUTS, ON_HOST, VERSION
from tests.node.machines import machine
from tests.real_cluster.node import missing_for_a_node
from tools.gpu.oci_bundle import edits_of, make_root, oci_config, run_container

from windlass.node.cdi import CdiSpec, check_spec, make_spec
from windlass.node.cdi_hooks import find_hook_program
from windlass.node.driver_files import find_driver
from windlass.node.host_root import HostRoot

HERE = Path(__file__).parent
SOURCES = {"program": HERE.parents[1] / "tools/gpu/vector_add.c", "libcuda": HERE / "fake_libcuda.c"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if lacking := missing_for_a_node():
        pytest.fail(lacking)
    folder = tmp_path_factory.mktemp("built")
    shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    for name, options in (("program", ["-ldl"]), ("libcuda", shared)):
        subprocess.run(["gcc", "-o", str(folder / name), str(SOURCES[name]), *options], check=True)
    return {name: folder / name for name in SOURCES}


class Scene:
    """A host with a layout of the driver, and a container root without one."""

    def __init__(self, folder: Path, built: dict[str, Path], layout: str) -> None:
        self.folder, self.bundle = folder, folder / "bundle"
        host = folder / "machine"
        self.backend = machine(count=1, folder=host)
        shutil.rmtree(host / "usr")
        LAYOUTS[layout](host)
        shutil.copy(built["libcuda"], host / f"{ON_HOST[layout][1:]}/libcuda.so.{VERSION}")
        self.host = HostRoot(host)
        make_root(self.bundle / "rootfs", built["program"])
        assert not list(self.bundle.rglob("libcuda*"))

    def spec(self) -> CdiSpec:
        driver = find_driver(self.host, VERSION)
        # The script runs on this machine, whatever the simulated one has.
        hook = find_hook_program(HostRoot(), "", self.folder / "state")
        spec = make_spec(self.backend.inventory(), self.host, "k8s.device-plugin.nvidia.com/gpu", driver, hook=hook)
        layouts.add(self.host.root, "bin/sh")
        check_spec(spec, self.host, driver)
        return spec

    def run(self, config: dict[str, Any]) -> str:
        runc = shutil.which("runc")
        assert runc is not None
        name = f"windlass-{uuid.uuid4().hex[:8]}"
        done = run_container(runc, self.bundle, name, {**config, "linux": {**config["linux"], "cgroupsPath": name}})
        return done.stdout + done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("uid", [0, 65534])
def test_a_container_computes_with_the_driver_that_the_spec_brings(
    tmp_path: Path, built: dict[str, Path], layout: str, uid: int
) -> None:
    scene = Scene(tmp_path, built, layout)
    config = oci_config(edits_of(scene.spec(), ["0"]), uid=uid)
    assert scene.run(config) == "right: 65536 sums on Pretended GPU with 42 multiprocessors\n"


def test_without_the_spec_there_is_no_driver_to_find(tmp_path: Path, built: dict[str, Path]) -> None:
    scene = Scene(tmp_path, built, "usr-local")
    assert "libcuda.so.1: cannot open shared object file" in scene.run(oci_config([]))


def test_an_image_can_t_make_the_hook_write_to_the_host(tmp_path: Path, built: dict[str, Path]) -> None:
    """Its folder of library configuration is a link to a folder of the host, and LD_PRELOAD is in its environment."""
    scene = Scene(tmp_path, built, "usr-local")
    outside = tmp_path / "outside"
    outside.mkdir()
    layouts.link(scene.bundle / "rootfs", "etc/ld.so.conf.d", str(outside))
    config = oci_config(edits_of(scene.spec(), ["0"]))
    config["process"]["env"].append("LD_PRELOAD=/proc/self/cwd/evil.so")
    assert "right" in scene.run(config)
    assert list(outside.iterdir()) == []
