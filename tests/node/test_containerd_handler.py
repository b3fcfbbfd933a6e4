"""A runtime handler for containerd: what is written beside an admin's configuration, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.model.errors import InputError
from windlass.node.containerd_handler import DROP_IN, MAIN_FILE, MARK, HandlerPlan, plan_handler

BINARY = "/usr/bin/nvidia-container-runtime"
RUNTIME = "io.containerd.cri.v1.runtime"
ODD = """# our own file
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
root = "/srv/containerd"

[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = '/srv/cni'  # not the usual place
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
pod_annotations = ["a.*"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
"""
OLD = """version = 2
imports = ["conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""


def plan(text: str, major: int = 2, *more: tuple[str, str]) -> HandlerPlan:
    return plan_handler([(MAIN_FILE, text), *more], DROP_IN, major, "nvidia", BINARY)


def test_the_handler_is_runcs_with_another_binary() -> None:
    found = plan(ODD)
    assert (found.why, found.lost) == ("", ())
    assert found.text.startswith(MARK)
    made = tomllib.loads(found.text)
    assert made == {
        "version": 3,
        "plugins": {
            RUNTIME: {
                "containerd": {
                    "runtimes": {
                        "nvidia": {
                            "runtime_type": "io.containerd.runc.v2",
                            "pod_annotations": ["a.*"],
                            "options": {"SystemdCgroup": True, "BinaryName": BINARY},
                        }
                    }
                }
            }
        },
    }


def test_containerd_1_would_lose_what_the_admin_has_and_is_refused() -> None:
    found = plan(OLD, 1)
    assert found.text == ""
    assert found.lost == (
        "plugins.io.containerd.grpc.v1.cri.enable_cdi = true",
        "plugins.io.containerd.grpc.v1.cri.containerd.runtimes.runc.options.SystemdCgroup = true",
    )
    assert "would take away 2 settings of containerd 1" in found.why
    assert plan(OLD, 2).text, "the same file on containerd 2, which merges"


def test_containerd_1_without_settings_of_that_plugin_loses_nothing() -> None:
    found = plan('version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n[debug]\nlevel = "info"\n', 1)
    assert 'runtimes.nvidia.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"' in found.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version = 3\n", "imports nothing, and not /etc/containerd/conf.d/90-windlass.toml"),
        ('version = 3\nimports = ["/etc/containerd/other/*.toml"]\n', "imports /etc/containerd/other/*.toml, and not"),
        ("root = '/x'\n", "has version None; known are 2, 3, 4"),
        ("version = 9\n", "has version 9"),
    ],
)
def test_what_would_have_no_effect_is_refused(text: str, why: str) -> None:
    found = plan(text)
    assert (found.text, found.lost) == ("", ())
    assert why in found.why


def test_without_a_main_file_nothing_is_read() -> None:
    assert "there is no main file" in plan_handler([], DROP_IN, 2, "nvidia", BINARY).why


def test_a_handler_that_is_there_is_left_alone() -> None:
    text = f"version = 3\n[plugins.'{RUNTIME}'.containerd.runtimes.nvidia]\nruntime_type = 'x'\n"
    assert plan(ODD, 2, ("/etc/containerd/conf.d/99-nvidia.toml", text)) == HandlerPlan()


def test_a_file_that_is_no_toml_is_named() -> None:
    with pytest.raises(InputError, match="it is no TOML"):
        plan(ODD, 2, ("/etc/containerd/conf.d/x.toml", "= broken"))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host's file system with an admin's configuration and the runtime's binary."""
    for path, text in ((MAIN_FILE, ODD), (BINARY, "")):
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def run(host: Path, *arguments: str) -> int:
    given = ["node", "runtime", f"--root={host}", "--containerd-version=2.1", *arguments]
    return run_command(cli, given, "windlass")


def test_written_and_undone_the_host_is_as_it_was(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in host.rglob("*") if path.is_file()}

    before = files()
    assert run(host) == 0
    assert files() == before
    assert run(host, "--write") == 0
    drop_in = host / DROP_IN.lstrip("/")
    assert files() == {**before, str(drop_in): drop_in.read_bytes()}
    assert run(host, "--write") == 0, "once more is no change"
    assert run(host, "--undo") == 0
    assert files() == before
    assert "systemctl restart containerd" in capsys.readouterr().err


def test_a_file_of_the_admins_in_its_place_stays(host: Path) -> None:
    drop_in = host / DROP_IN.lstrip("/")
    drop_in.parent.mkdir()
    drop_in.write_text("version = 3\n")
    assert run(host, "--undo") == 1
    assert drop_in.read_text() == "version = 3\n"


def test_nothing_is_written_for_a_binary_that_is_not_there(host: Path) -> None:
    assert run(host, "--write", "--binary=/opt/none") == 2
    assert not (host / DROP_IN.lstrip("/")).exists()


def test_a_refusal_says_what_would_be_lost(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (host / MAIN_FILE.lstrip("/")).write_text(OLD)
    assert run(host, "--write", "--containerd-version=containerd v1.7.35") == 1
    shown = capsys.readouterr()
    assert "enable_cdi = true" in shown.out
    assert "nothing was written" in shown.err
