"""Several named configs, one of which the node's label picks: as the original's config manager, and live."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.node.machines import FLEET, until
from tests.node.test_agent import GPU, WINDLASS
from tests.node.test_sidecar import FakeApi
from tests.node.test_sidecar import Scene as SidecarScene

from windlass.model.errors import ClusterUnreachable, InputError
from windlass.model.names.nvidia import DEVICE_PLUGIN_CONFIG_LABEL
from windlass.node import agent
from windlass.node.agent import AgentOptions
from windlass.node.config_source import ConfigSource
from windlass.node.named_configs import (
    CONFIG_LABEL_FILE,
    FALLBACKS,
    LAST_GOOD_FILE,
    NamedConfigs,
    choose_config_name,
)

SHARED = "nvidia.com/gpu.shared"
CONFIGS = {
    "default": "version: v1",
    "shared": "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
    "broken": "flags: {migStrategy: some}",
}


@pytest.mark.parametrize(
    ("label", "names", "default", "fallbacks", "chosen"),
    [
        ("a", "ab", "", (), "a"),
        ("a", "ab", "b", ("empty",), "a"),
        ("", "ab", "b", ("empty",), "b"),
        ("", ("default", "b"), "", ("named", "single"), "default"),
        ("", "b", "", ("named", "single"), "b"),
        ("", "ab", "", ("named", "single", "empty"), ""),
        ("", "b", "", ("empty", "single"), ""),
    ],
)
def test_label_then_default_then_fallbacks_in_order(
    label: str, names: str, default: str, fallbacks: tuple[str, ...], chosen: str
) -> None:
    assert choose_config_name(label, set(names), default, fallbacks) == chosen


@pytest.mark.parametrize(
    ("label", "names", "default", "fallbacks", "words"),
    [
        ("c", "ab", "a", ("empty",), "specified config c does not exist.*there are a, b"),
        ("", "ab", "c", ("empty",), "specified config c does not exist"),
        ("", "ab", "", ("named", "single"), "no config was set, no default was provided"),
        ("", "", "", ("empty",), "no configuration files available"),
        ("a", "", "", ("empty",), "no configuration files available"),
    ],
)
def test_what_leads_nowhere_is_said(
    label: str, names: str, default: str, fallbacks: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        choose_config_name(label, set(names), default, fallbacks)


@given(
    st.text(max_size=3),
    st.frozensets(st.sampled_from(["default", "a", "b"])),
    st.sampled_from(["", "a", "c"]),
    st.lists(st.sampled_from(FALLBACKS)),
)
def test_the_chosen_one_is_always_there(label: str, names: frozenset[str], default: str, fallbacks: list[str]) -> None:
    try:
        chosen = choose_config_name(label, names, default, fallbacks)
    except InputError:
        assert label not in names or not label
    else:
        assert chosen in names or (chosen == "" and "empty" in fallbacks)
        assert not label or chosen == label


class Node:
    def __init__(self, folder: Path) -> None:
        self.configs, self.state = folder / "configs", folder / "state"
        self.configs.mkdir()
        self.state.mkdir()
        for name, text in CONFIGS.items():
            (self.configs / name).write_text(text)
        self.log: list[str] = []

    def label(self, value: str) -> None:
        (self.state / CONFIG_LABEL_FILE).write_text(value)

    def start(self, **more: Any) -> ConfigSource:
        return ConfigSource(NamedConfigs(self.configs, self.state, **more), {}, {}, log=self.log.append)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def replicas(source: ConfigSource) -> int:
    sharing = source.reload_if_changed().sharing
    return sharing.resources[0].replicas if sharing is not None else 1


class TestFollowing:
    def test_the_label_switches_and_its_removal_falls_back(self, node: Node) -> None:
        source = node.start()
        assert replicas(source) == 1
        node.label("shared")
        assert replicas(source) == 2
        assert node.log == ["the configuration has changed: shared is in force"]
        node.label("")
        assert replicas(source) == 1

    @pytest.mark.parametrize(
        ("label", "words"),
        [
            ("sharde", f"{DEVICE_PLUGIN_CONFIG_LABEL}=sharde: specified config sharde does not exist"),
            ("broken", "flags.migStrategy"),
            ("..data", "does not exist"),
        ],
    )
    def test_a_wrong_name_leaves_the_last_good_one_in_force(self, node: Node, label: str, words: str) -> None:
        (node.configs / "..data").mkdir()
        node.label("shared")
        source = node.start()
        node.label(label)
        for _ in range(3):
            assert replicas(source) == 2
        (line,) = node.log
        assert "the last good configuration stays in force" in line
        assert words in line

    def test_a_config_that_comes_later_is_taken(self, node: Node) -> None:
        node.label("shared")
        source = node.start()
        node.label("late")
        assert replicas(source) == 2
        (node.configs / "late").write_text(CONFIGS["shared"].replace("2", "5"))
        assert replicas(source) == 5
        (node.configs / "late").write_text(CONFIGS["shared"].replace("2", "12"))
        assert replicas(source) == 12

    def test_at_the_first_start_a_wrong_name_is_an_error(self, node: Node) -> None:
        for label in ("sharde", "broken"):
            node.label(label)
            with pytest.raises(InputError):
                node.start()
        assert not (node.state / LAST_GOOD_FILE).exists()

    @pytest.mark.parametrize("label", ["sharde", "broken"])
    def test_at_a_later_start_the_last_good_one_counts(self, node: Node, label: str) -> None:
        node.label("shared")
        node.start()
        node.label(label)
        assert replicas(node.start()) == 2
        assert f"the last good configuration ({node.configs / 'shared'}) stays in force" in node.log[0]

    def test_a_folder_that_is_not_there_is_named(self, node: Node, tmp_path: Path) -> None:
        named = NamedConfigs(tmp_path / "none", node.state)
        with pytest.raises(InputError, match="none"):
            named.names()

    def test_an_unknown_strategy_is_refused(self, node: Node) -> None:
        with pytest.raises(InputError, match="unknown fallback strategy: first"):
            node.start(fallbacks=("first",))


def test_the_process_beside_leaves_the_labels_word_and_labels_at_once(tmp_path: Path) -> None:
    scene = SidecarScene(
        tmp_path, FakeApi(), config_label=DEVICE_PLUGIN_CONFIG_LABEL, **{"--sleep-interval": "infinite"}
    )
    word = tmp_path / "state" / CONFIG_LABEL_FILE
    stop = threading.Event()
    thread = threading.Thread(target=scene.sidecar.run, args=(stop,))
    thread.start()
    try:
        until(word.exists, 20, "the first look")
        assert word.read_text() == ""
        until(lambda: scene.sink.puts, 20, "labels at the start")
        before = len(scene.sink.puts)
        scene.api.label(**{DEVICE_PLUGIN_CONFIG_LABEL.replace("/", "__"): "shared"})
        until(lambda: word.read_text() == "shared", 20, "the label's word")
        until(lambda: len(scene.sink.puts) > before, 20, "labels again")
    finally:
        stop.set()
        thread.join()


class Flaky:
    """An API server that is away for some calls."""

    def __init__(self, away: int) -> None:
        self.away = away

    def get_node(self) -> dict[str, Any]:
        if self.away:
            self.away -= 1
            raise ClusterUnreachable("connection refused")
        return {"metadata": {"labels": {DEVICE_PLUGIN_CONFIG_LABEL: "shared"}}}


class TestTheFirstLook:
    def options(self, folder: Path) -> AgentOptions:
        return AgentOptions(state=folder, config_file_srcdir=folder)

    def test_the_label_is_asked_for_until_there_is_an_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: list[str] = []
        monkeypatch.setattr(agent, "LABEL_RETRY_SECONDS", 0.01)
        monkeypatch.setattr(agent, "_make_api", lambda options: Flaky(3))
        agent.fetch_config_label(self.options(tmp_path), log.append, threading.Event())
        assert (tmp_path / CONFIG_LABEL_FILE).read_text() == "shared"
        assert log == [f"the node's label {DEVICE_PLUGIN_CONFIG_LABEL} can't be read: connection refused"]

    def test_an_old_word_is_better_than_waiting(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / CONFIG_LABEL_FILE).write_text("before")
        monkeypatch.setattr(agent, "_make_api", lambda options: Flaky(10**9))
        agent.fetch_config_label(self.options(tmp_path), lambda line: None, threading.Event())
        assert (tmp_path / CONFIG_LABEL_FILE).read_text() == "before"

    def test_the_plugin_waits_for_it_and_only_where_somebody_reads_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(agent, "_can_reach_api", lambda options: False)
        agent.wait_for_config_label(self.options(tmp_path), lambda line: None, threading.Event())
        monkeypatch.setattr(agent, "_can_reach_api", lambda options: True)
        log: list[str] = []
        waits = threading.Thread(
            target=agent.wait_for_config_label, args=(self.options(tmp_path), log.append, threading.Event())
        )
        waits.start()
        until(lambda: log, 20, "it says that it waits")
        assert waits.is_alive()
        (tmp_path / CONFIG_LABEL_FILE).write_text("")
        waits.join(60)
        assert not waits.is_alive()


class LabelServer:
    """As much of an API server as the agent needs to follow its node."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self._changed = threading.Condition()
        self._ended = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_PATCH(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._say(outer.node())

            def do_GET(self) -> None:
                if "watch=1" in self.path:
                    self._watch()
                elif self.path.startswith("/api/v1/nodes/"):
                    self._say(outer.node())
                else:
                    items = [outer.node()] if self.path.startswith("/api/v1/nodes") else []
                    self._say({"metadata": {"resourceVersion": "1"}, "items": items})

            do_POST = do_PATCH

            def _say(self, document: dict[str, Any]) -> None:
                data = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _watch(self) -> None:
                self.send_response(200)
                self.end_headers()
                with outer._changed:
                    while outer._changed.wait(60) and not outer._ended:
                        if self.path.startswith("/api/v1/nodes"):
                            line = json.dumps({"type": "MODIFIED", "object": outer.node()})
                            self.wfile.write(line.encode() + b"\n")
                            self.wfile.flush()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def node(self) -> dict[str, Any]:
        return {"kind": "Node", "metadata": {"name": "node-0", "uid": "u", "labels": dict(self.labels)}}

    def label(self, value: str) -> None:
        with self._changed:
            self.labels = {DEVICE_PLUGIN_CONFIG_LABEL: value} if value else {}
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self.server.shutdown()
        self.server.server_close()


class AgentScene:
    def __init__(self, folder: Path) -> None:
        from windlass_bench.fake_kubelet import FakeKubelet

        self.folder = folder
        (folder / "fleet.yaml").write_text(FLEET)
        self.configs = folder / "configs"
        self.configs.mkdir()
        for name, text in CONFIGS.items():
            (self.configs / name).write_text(text)
        self.api = LabelServer()
        (folder / "kubeconfig").write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
            f'clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{self.api.server.server_port}"}}}}]\n'
        )
        self.kubelet = FakeKubelet(folder / "plugins")
        self.kubelet.start()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self, *more: str) -> None:
        command = [
            *(*WINDLASS, "node", "run", "--fleet", str(self.folder / "fleet.yaml"), "--node-name", "node-0"),
            *("--root", str(self.folder / "machine"), "--state", str(self.folder / "state")),
            *("--parts", "plugin", "--device-plugins", str(self.folder / "plugins")),
            *("--cdi-folder", str(self.folder / "cdi"), "--kubeconfig", str(self.folder / "kubeconfig")),
            *more,
        ]
        variables = {**os.environ, "CONFIG_FILE_SRCDIR": str(self.configs)}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=variables)

    def count(self, resource: str) -> int:
        return len(self.kubelet.healthy_devices(resource))

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        self.kubelet.stop()
        self.api.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[AgentScene]:
    made = AgentScene(tmp_path)
    yield made
    made.stop()


class TestAgent:
    def test_the_nodes_label_switches_what_the_kubelet_is_told(self, scene: AgentScene) -> None:
        scene.api.labels = {DEVICE_PLUGIN_CONFIG_LABEL: "shared"}
        scene.start()
        until(lambda: scene.count(SHARED) == 16, 30, "the label's config from the start")
        assert scene.count(GPU) == 0, "nothing else was offered before"
        scene.api.label("")
        until(lambda: (scene.count(GPU), scene.count(SHARED)) == (8, 0), 30, "the default")
        scene.api.label("sharde")
        until(lambda: "specified config sharde does not exist" in scene.log, 30, "a wrong name is said")
        assert scene.count(GPU) == 8
        scene.api.label("shared")
        until(lambda: (scene.count(GPU), scene.count(SHARED)) == (0, 16), 30, "the right name")

    def test_a_wrong_name_at_the_first_start_is_exit_2(self, scene: AgentScene) -> None:
        scene.api.labels = {DEVICE_PLUGIN_CONFIG_LABEL: "sharde"}
        scene.start()
        assert scene.process is not None
        assert scene.process.wait(120) == 2
        assert "there are broken, default, shared" in scene.log
        assert "Traceback" not in scene.log

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (("--config-file-srcdir", "none"), "none: No such file"),
            (("--fallback-strategies", "first"), "unknown fallback strategy: first"),
            (("--config-file", "fleet.yaml"), "--config-file-srcdir"),
        ],
    )
    def test_what_is_wrong_on_the_command_line(
        self, scene: AgentScene, more: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(scene.folder)
        scene.start(*more)
        assert scene.process is not None
        assert scene.process.wait(120) == 2
        (line,) = scene.log.splitlines()
        assert words in line
