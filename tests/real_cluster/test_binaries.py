"""The builder: builds once, keeps what it built, says what it does, and takes ready-made programs where there are any.

A stand-in for Go does the building here, which writes down how often it was called.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.real_cluster import fixtures
from tests.real_cluster.binaries import Binaries, NotAvailable
from tests.real_cluster.recipes import MODULES, RECIPES, Module, module

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
echo "$@" >> {calls}
sleep 0.3
[ -e {broken} ] && {{ echo "no network" >&2; exit 1; }}
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""


class Machine:
    """A machine with a Go that only pretends, and an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.calls, self.broken = folder / "calls", folder / "broken"
        tools = folder / "tools"
        tools.mkdir()
        (tools / "go").write_text(GO.format(calls=self.calls, broken=self.broken))
        (tools / "go").chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        self.environment = {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
        self.told: list[str] = []

    def binaries(self, **more: str) -> Binaries:
        return Binaries({**self.environment, **more}, self.told.append)

    def builds(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_builds_once_and_says_what_and_how_long(machine: Machine) -> None:
    machine.binaries().build(["etcd"])
    assert machine.builds() == 1
    assert "etcd" in machine.told[0]
    assert any("took 90 s elsewhere" in line for line in machine.told)
    told = len(machine.told)
    again = machine.binaries()
    again.build(["etcd"])
    assert again.path("etcd").read_text() == "built\n"
    assert machine.builds() == 1
    assert len(machine.told) == told, "nothing to build, nothing to say"


def test_several_processes_build_once(machine: Machine) -> None:
    command = [sys.executable, "-m", "tests.real_cluster.binaries", "etcd", "ctr"]
    root = Path(__file__).parents[2]
    running = [
        subprocess.Popen(command, cwd=root, env=machine.environment, stderr=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert machine.builds() == 2


def test_a_failed_build_says_why_and_leaves_nothing(machine: Machine) -> None:
    machine.broken.touch()
    with pytest.raises(NotAvailable, match=r"etcd v.* could not be built: no network"):
        machine.binaries().path("etcd")
    assert machine.binaries().at_hand("etcd") is None
    machine.broken.unlink()
    assert machine.binaries().path("etcd").exists()


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_building_ahead_fails_only_where_it_has_to(machine: Machine, ci: str, code: int) -> None:
    machine.broken.touch()
    command = [sys.executable, "-m", "tests.real_cluster.binaries", "etcd"]
    environment = {**machine.environment, "CI": ci}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code
    assert "no real cluster" in done.stderr


def test_ready_made_programs_are_taken(machine: Machine, tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").write_text("theirs")
    binaries = machine.binaries(KUBEBUILDER_ASSETS=str(assets))
    assert binaries.path("etcd") == assets / "etcd"
    binaries.path("ctr")
    assert machine.builds() == 1, "what is not in the folder is built"


def test_a_changed_pin_is_built_anew(tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_text((MODULES / "etcd" / name).read_text())
    pinned = module("etcd")
    assert Module(tmp_path, pinned.pins).digest == pinned.digest
    (tmp_path / "go.sum").write_text("")
    assert Module(tmp_path, pinned.pins).digest != pinned.digest


@pytest.mark.parametrize("kubernetes", ["", "1.34"])
def test_every_recipe_has_its_module(kubernetes: str) -> None:
    for recipe in RECIPES.values():
        pinned = module(recipe.module, kubernetes)
        assert pinned.version.startswith("v")
        assert recipe.package in (pinned.folder / "tools.go").read_text()
    release = module("kubernetes", kubernetes).version
    assert release.startswith(f"v{kubernetes or '1.36'}.")
    staging = [line for line in module("kubernetes", kubernetes).manifest.splitlines() if "=>" in line]
    assert staging
    assert all(line.endswith(release.replace("v1.", "v0.", 1)) for line in staging)


def test_no_cluster_is_a_loud_skip_and_in_ci_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    with (
        pytest.warns(pytest.PytestWarning, match="NO REAL CLUSTER: why"),
        pytest.raises(pytest.skip.Exception),
    ):
        fixtures.unavailable("why")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="NO REAL CLUSTER: why"):
        fixtures.unavailable("why")
