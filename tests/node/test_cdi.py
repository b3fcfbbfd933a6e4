"""CDI specs: what they say, that the format's schema takes them, and that a wrong one is never put in force."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
from tests.node import driver_layouts as layouts
from tests.node.driver_layouts import INSIDE, LAYOUTS, ON_HOST, VERSION
from tests.node.machines import machine

from windlass.model.errors import InputError
from windlass.node.cdi import CdiSpec, check_spec, edits_for, make_spec, read_spec, write_spec
from windlass.node.cdi_hooks import HookProgram
from windlass.node.driver_files import DriverFiles, find_driver
from windlass.node.host_root import HostRoot

KIND = "k8s.device-plugin.nvidia.com/gpu"
OURS = HookProgram(
    path="/bin/sh",
    command=("sh", "/run/windlass/cdi_hook.sh"),
    hooks=frozenset(("create-symlinks", "enable-cuda-compat", "update-ldcache")),
)
STRINGS = {"type": "array", "items": {"type": "string"}}
EDITS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "env": STRINGS,
        "deviceNodes": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["path"],
                "properties": {
                    "path": {"type": "string", "pattern": "^/"},
                    "hostPath": {"type": "string", "pattern": "^/"},
                    "type": {"enum": ["b", "c", "u", "p"]},
                    "major": {"type": "integer", "minimum": 0},
                    "minor": {"type": "integer", "minimum": 0},
                    "fileMode": {"type": "integer", "minimum": 0},
                    "uid": {"type": "integer", "minimum": 0},
                    "gid": {"type": "integer", "minimum": 0},
                    "permissions": {"type": "string", "pattern": "^[rwm]+$"},
                },
            },
        },
        "mounts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["hostPath", "containerPath"],
                "properties": {
                    "hostPath": {"type": "string"},
                    "containerPath": {"type": "string"},
                    "options": STRINGS,
                    "type": {"type": "string"},
                },
            },
        },
        "hooks": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["hookName", "path"],
                "properties": {
                    "hookName": {"enum": ["createContainer", "createRuntime", "startContainer"]},
                    "path": {"type": "string"},
                    "args": STRINGS,
                    "env": STRINGS,
                },
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["cdiVersion", "kind", "devices"],
    "properties": {
        "cdiVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "kind": {"type": "string", "pattern": r"^[a-zA-Z][a-zA-Z0-9_.-]*[a-zA-Z0-9]/[a-zA-Z][a-zA-Z0-9_-]*$"},
        "devices": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "containerEdits"],
                "properties": {"name": {"type": "string", "minLength": 1}, "containerEdits": EDITS},
            },
        },
        "containerEdits": EDITS,
    },
}
"""The public CDI format in so far as specs here use it."""


def spec_of(folder: Path, mig: tuple[str, ...] = (), hook: HookProgram | None = None) -> CdiSpec:
    """Of a simulated machine, which has two libraries."""
    inventory = machine(count=2, mig=mig, folder=folder).inventory()
    root = HostRoot(folder)
    return make_spec(inventory, root, KIND, find_driver(root, inventory.driver.version), hook=hook)


def test_devices_are_named_by_index_and_uuid_and_all(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert [device.name for device in spec.devices][::2] == ["0", "1", "all"]
    assert sum(device.name.startswith("GPU-") for device in spec.devices) == 2


def test_instances_bring_their_gpu_and_both_capabilities(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, mig=("1g.10gb", "2g.20gb"))
    (device,) = [device for device in spec.devices if device.name == "0:1"]
    paths = [mount.container_path for mount in device.container_edits.mounts]
    assert paths[0] == "/dev/nvidia0"
    assert len([path for path in paths if path.startswith("/dev/nvidia-caps/nvidia-cap")]) == 2


def on_layout(folder: Path, layout: str, *, hook: HookProgram | None = OURS) -> tuple[CdiSpec, DriverFiles]:
    """The spec that an agent in a container would write on a host with this layout of the driver."""
    LAYOUTS[layout](folder / "host")
    layouts.add(folder / "host", "bin/sh")
    inventory = machine(count=1, folder=folder / "machine").inventory()
    root = HostRoot("/", dev=folder / "machine", files=folder / "host")
    driver = find_driver(root, VERSION)
    spec = make_spec(inventory, root, KIND, driver, hook=hook)
    check_spec(spec, root, driver)
    return spec, driver


@pytest.mark.parametrize("layout", LAYOUTS)
class TestDriver:
    def test_is_mounted_from_the_host_whatever_its_layout(self, tmp_path: Path, layout: str) -> None:
        spec, _ = on_layout(tmp_path, layout)
        mounts = {mount.container_path: mount.host_path for mount in spec.container_edits.mounts}
        assert mounts[f"{INSIDE[layout]}/libcuda.so.{VERSION}"] == f"{ON_HOST[layout]}/libcuda.so.{VERSION}"
        assert "/usr/bin/nvidia-smi" in mounts
        assert spec.container_edits.env == ("NVIDIA_VISIBLE_DEVICES=void",)

    def test_is_found_by_programs_through_links_and_the_loaders_cache(self, tmp_path: Path, layout: str) -> None:
        spec, _ = on_layout(tmp_path, layout)
        hooks = {hook.args[2]: hook for hook in spec.container_edits.hooks}
        assert list(hooks) == ["create-symlinks", "enable-cuda-compat", "update-ldcache"]
        folder = INSIDE[layout]
        assert f"libcuda.so.{VERSION}::{folder}/libcuda.so.1" in hooks["create-symlinks"].args
        assert f"libcuda.so.1::{folder}/libcuda.so" in hooks["create-symlinks"].args
        assert hooks["update-ldcache"].args[3:] == ("--folder", folder)
        assert f"--host-driver-version={VERSION}" in hooks["enable-cuda-compat"].args

    def test_hooks_don_t_get_the_containers_environment(self, tmp_path: Path, layout: str) -> None:
        """An empty one is replaced by the container's, with the image's LD_PRELOAD."""
        spec, _ = on_layout(tmp_path, layout)
        assert all(hook.env for hook in spec.container_edits.hooks)

    def test_links_are_mounts_where_nothing_can_run_a_hook(self, tmp_path: Path, layout: str) -> None:
        spec, _ = on_layout(tmp_path, layout, hook=None)
        mounts = {mount.container_path: mount.host_path for mount in spec.container_edits.mounts}
        names = [f"{INSIDE[layout]}/libcuda.so{end}" for end in ("", ".1", f".{VERSION}")]
        assert {mounts[name] for name in names} == {f"{ON_HOST[layout]}/libcuda.so.{VERSION}"}
        assert spec.container_edits.hooks == ()


def test_a_spec_without_libcuda_is_refused(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    mounts = tuple(mount for mount in spec.container_edits.mounts if "libcuda" not in mount.container_path)
    edits = msgspec.structs.replace(spec.container_edits, mounts=mounts)
    with pytest.raises(InputError, match="libcuda"):
        check_spec(msgspec.structs.replace(spec, container_edits=edits), HostRoot(tmp_path))


def test_hooks_go_by_the_name_of_their_program(tmp_path: Path) -> None:
    hook = HookProgram(path="/usr/bin/nvidia-ctk", command=("nvidia-ctk", "hook"), hooks=frozenset(("update-ldcache",)))
    (only,) = spec_of(tmp_path, hook=hook).container_edits.hooks
    assert only.path == "/usr/bin/nvidia-ctk"
    assert only.args[:3] == ("nvidia-ctk", "hook", "update-ldcache")


@pytest.mark.parametrize("mig", [(), ("1g.10gb", "3g.40gb")])
def test_what_is_written_is_valid_and_reads_back(tmp_path: Path, mig: tuple[str, ...]) -> None:
    spec = spec_of(tmp_path, mig)
    check_spec(spec, HostRoot(tmp_path))
    file = write_spec(spec, tmp_path / "cdi")
    assert file.name == "k8s.device-plugin.nvidia.com-gpu.json"
    jsonschema_rs.validate(SCHEMA, json.loads(file.read_text()))
    assert read_spec(file.read_bytes()) == spec


def test_a_real_node_is_a_node_with_its_numbers(tmp_path: Path) -> None:
    """/dev/null stands for a GPU: a character device that every machine has."""
    root = HostRoot(tmp_path, dev="/")
    found = root.device_node("/dev/null")
    assert found is not None
    assert (found.major, found.minor, found.is_stand_in) == (1, 3, False)
    (node,) = edits_for(["/dev/null"], root).device_nodes
    assert (node.major, node.minor, node.file_mode) == (1, 3, 0o666), "the host's mode, not one that a runtime makes up"


def test_a_node_that_is_gone_or_has_another_number_is_refused(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    broken = json.loads(write_spec(spec, tmp_path / "cdi").read_text())
    node = {"path": "/dev/nvidia0", "major": 195, "minor": 7, "type": "c"}
    broken["devices"][0]["containerEdits"] = {"deviceNodes": [node]}
    with pytest.raises(InputError, match="195:0 and not 195:7"):
        check_spec(read_spec(json.dumps(broken).encode()), HostRoot(tmp_path))
    (tmp_path / "dev/nvidia0").unlink()
    with pytest.raises(InputError) as refused:
        check_spec(spec, HostRoot(tmp_path))
    assert refused.value.path.startswith("devices[0].containerEdits")


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    text = write_spec(spec_of(tmp_path), tmp_path / "cdi").read_text().replace('"kind"', '"extra": 1, "kind"')
    with pytest.raises(InputError, match="extra"):
        read_spec(text.encode())
