"""Options that can't work are one line and exit code 2, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.node.machines import FLEET

from windlass.cli.node_run import run
from windlass.model.errors import InputError
from windlass.node.agent import AgentOptions, listen_address
from windlass.node.exporter.extra_labels import extra_labels_from_environment
from windlass.node.options_validation import validate_options
from windlass.node.plugin.registrar import NO_REGISTRATION, Registrar


def options(folder: Path, **more: Any) -> AgentOptions:
    return AgentOptions(root=folder / "machine", state=folder / "state", without_api=True, **more)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (":9400", ("", 9400)),
        ("9400", ("", 9400)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9400", ("::1", 9400)),
        ("node.example:65535", ("node.example", 65535)),
    ],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert listen_address(text) == found


@pytest.mark.parametrize("text", ["", ":", "foo", ":foo", ":65536", ":-1", "::1", "9400:", "127.0.0.1", ":٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError, match="--listen"):
        listen_address(text)


@pytest.mark.parametrize("interval", [float("nan"), float("inf"), 0.0, -1.0, 1e9])
def test_what_is_no_interval(tmp_path: Path, interval: float) -> None:
    with pytest.raises(InputError, match="--interval"):
        validate_options(options(tmp_path, interval=interval))
    validate_options(options(tmp_path, interval=interval, parts=frozenset(["plugin"])))


def test_a_state_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(InputError, match="--state"):
        validate_options(options(tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mig-configs: {}", "version"),
        ("version: v1\nmig-configs: {a: [{devices: all}]}", "mig-enabled"),
        ("[", "YAML"),
    ],
)
def test_a_mig_config_is_read_before_its_label_comes(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mig.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        validate_options(options(tmp_path, mig_config=file))
    validate_options(options(tmp_path, mig_config=file, parts=frozenset(["plugin"])))


def test_dcgm_exporters_interval_counts_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AgentOptions] = []
    monkeypatch.setattr("windlass.cli.node_run.become_supervisor", lambda commands: None)
    monkeypatch.setattr("windlass.cli.node_run.validate_options", seen.append)
    for variable, given in (("1500", []), ("1500", ["--interval", "7"]), ("", [])):
        monkeypatch.setenv("DCGM_EXPORTER_INTERVAL", variable)
        done = CliRunner().invoke(run, ["--without-api", *given], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert [item.interval for item in seen] == [1.5, 7.0, 30.0]
    monkeypatch.setenv("DCGM_EXPORTER_INTERVAL", "soon")
    assert "DCGM_EXPORTER_INTERVAL" in str(CliRunner().invoke(run, ["--without-api"]).exception)


def test_an_empty_kubelet_socket_registers_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AgentOptions] = []
    monkeypatch.setattr("windlass.cli.node_run.become_supervisor", lambda commands: None)
    monkeypatch.setattr("windlass.cli.node_run.validate_options", seen.append)
    monkeypatch.delenv("KUBELET_SOCKET", raising=False)
    CliRunner().invoke(run, ["--without-api"], catch_exceptions=False)
    CliRunner().invoke(run, ["--without-api", "--kubelet-socket", "/k.sock"], catch_exceptions=False)
    CliRunner().invoke(run, ["--without-api", "--kubelet-socket="], catch_exceptions=False)
    monkeypatch.setenv("KUBELET_SOCKET", "")
    CliRunner().invoke(run, ["--without-api"], catch_exceptions=False)
    assert [item.kubelet_socket for item in seen] == [None, Path("/k.sock"), NO_REGISTRATION, NO_REGISTRATION]
    (tmp_path / "kubelet.sock").touch()
    assert Registrar(tmp_path).kubelet_identity() is not None
    assert Registrar(tmp_path, NO_REGISTRATION).kubelet_identity() is None


def test_labels_on_request_are_asked_for_by_the_originals_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument is what `install node --arg` and the chart's `node.args` can give to an agent."""
    given: list[AgentOptions] = []
    monkeypatch.setattr("windlass.cli.node_run.become_supervisor", lambda commands: None)
    monkeypatch.setattr("windlass.cli.node_run.child_commands", lambda options: given.append(options) or {})
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    usual = ["--fleet", str(fleet), "--root", str(tmp_path / "machine"), "--state", str(tmp_path), "--without-api"]
    flags = ["--kubernetes-enable-pod-labels", "--kubernetes-pod-label-allowlist-regex", "^team$"]
    done = CliRunner().invoke(run, [*usual, *flags, "--hpc-job-mapping-dir", "/run/jobs"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (options,) = given
    labels = extra_labels_from_environment(options.extra_labels)
    assert labels.of_pod({"team": "vision", "app": "x"}) == {"team": "vision"}
    assert labels.hpc_folder == Path("/run/jobs")


def test_a_wrong_pattern_is_told_before_anything_runs(tmp_path: Path) -> None:
    wrong = options(tmp_path, extra_labels={"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "("})
    with pytest.raises(InputError, match="ALLOWLIST_REGEX"):
        validate_options(wrong)
