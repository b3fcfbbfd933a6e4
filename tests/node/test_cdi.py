"""CDI specs: what they say, that the format's schema takes them, and that a wrong one is never put in force."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from tests.node.machines import machine

from windlass.model.errors import InputError
from windlass.node.cdi import CdiSpec, check_spec, make_spec, read_spec, write_spec
from windlass.node.host_root import HostRoot

KIND = "k8s.device-plugin.nvidia.com/gpu"
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


def spec_of(folder: Path, mig: tuple[str, ...] = ()) -> CdiSpec:
    backend = machine(count=2, mig=mig, folder=folder)
    return make_spec(backend.inventory(), HostRoot(folder), KIND)


def driver_files(folder: Path) -> None:
    """A driver's libraries and the toolkit's hook, as far as file names go."""
    for name in ("libcuda.so.580.159.04", "libnvidia-ml.so.580.159.04"):
        path = folder / "usr/lib/x86_64-linux-gnu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("nvidia-smi", "nvidia-ctk"):
        path = folder / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


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


def test_common_edits_bring_driver_hooks_and_a_void_variable(tmp_path: Path) -> None:
    driver_files(tmp_path)
    backend = machine(count=1, folder=tmp_path)
    spec = make_spec(backend.inventory(), HostRoot(tmp_path), KIND, hook="/usr/bin/nvidia-ctk")
    edits = spec.container_edits
    assert edits.env == ("NVIDIA_VISIBLE_DEVICES=void",)
    inside = [mount.container_path for mount in edits.mounts]
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04" in inside
    assert "/usr/bin/nvidia-smi" in inside
    links, cache = edits.hooks
    assert links.args[:3] == ("nvidia-ctk", "hook", "create-symlinks")
    assert "libcuda.so.580.159.04::/usr/lib/x86_64-linux-gnu/libcuda.so.1" in links.args
    assert cache.args[-1] == "/usr/lib/x86_64-linux-gnu"
    check_spec(spec, HostRoot(tmp_path))


@pytest.mark.parametrize("mig", [(), ("1g.10gb", "3g.40gb")])
def test_what_is_written_is_valid_and_reads_back(tmp_path: Path, mig: tuple[str, ...]) -> None:
    driver_files(tmp_path)
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
