"""A real containerd loads our drop-in beside an admin's configuration, and keeps every setting of it."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

from tests.node.test_containerd_handler import BINARY, ODD, RUNTIME
from tests.real_cluster.binaries import Binaries

from windlass.node.containerd_handler import plan_handler


def dumped(containerd: str, main: Path) -> dict[str, Any]:
    command = [containerd, f"--config={main}", "config", "dump"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout)


def settings(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= settings(value, f"{path}.{key}") if isinstance(value, dict) else {f"{path}.{key}": value}
    return found


def test_containerd_keeps_every_setting_and_has_the_handler(binaries: Binaries, tmp_path: Path) -> None:
    containerd, folder = str(binaries.path("containerd")), tmp_path / "conf.d"
    folder.mkdir()
    main, drop_in = tmp_path / "config.toml", folder / "90-windlass.toml"
    main.write_text(ODD.replace("/etc/containerd/conf.d", str(folder)))
    before = settings(dumped(containerd, main))
    found = plan_handler([(str(main), main.read_text())], str(drop_in), 2, "nvidia", BINARY)
    drop_in.write_text(found.text)
    after = dumped(containerd, main)
    kept = settings(after)
    assert {name: value for name, value in before.items() if kept.get(name) != value and name != ".imports"} == {}
    runtimes = after["plugins"][RUNTIME]["containerd"]["runtimes"]
    assert runtimes["nvidia"]["options"]["BinaryName"] == BINARY
    assert runtimes["nvidia"]["options"]["SystemdCgroup"] is True
    assert runtimes["nvidia"]["runtime_type"] == runtimes["runc"]["runtime_type"]
