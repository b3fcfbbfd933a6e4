"""`windlass up` as a user starts it: its lines, its files, its end; a pod that runs; a cluster that is kept."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.embedded.store.journal import open_state
from windlass.model.unstructured import Unstructured

PATIENCE = 600.0
"""Where nothing is compiled yet, the scheduler compiles first, on cores that other tests use too."""
COMMAND = "from windlass.cli.main import main; main()"


class Up:
    """The command in a process of its own, and the API as its kubeconfig leads to it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", COMMAND, "up", "--port", "0", "--page-port", "0"),
                *("--write-kubeconfig", str(self.kubeconfig), *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(folder)},
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        for stream, kept in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=self._read, args=(stream, kept), daemon=True).start()
        self.until(lambda: any(line.startswith("nodes") for line in self.lines))
        document = json.loads(self.kubeconfig.read_text())
        self.server = document["clusters"][0]["cluster"]["server"]
        self.token = document["users"][0]["user"]["token"]
        authority = document["clusters"][0]["cluster"]["certificate-authority-data"]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())

    @staticmethod
    def _read(stream: Any, kept: list[str]) -> None:
        for line in stream:
            kept.append(line.rstrip("\n"))

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert self.process.poll() is None, f"it has ended: {self.errors}"
            assert time.monotonic() < deadline, f"not in time; stderr: {self.errors}"
            time.sleep(0.05)
        return found

    def call(self, method: str, path: str, body: Unstructured | None = None, token: str | None = None) -> Unstructured:
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": f"Bearer {self.token if token is None else token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, context=self._tls, timeout=60) as answer:
            found: Unstructured = json.loads(answer.read())
            return found

    def pod(self, name: str) -> Unstructured:
        return self.call("GET", f"/api/v1/namespaces/default/pods/{name}")

    def start_pod(self, name: str, **container: Any) -> None:
        box = {"name": "main", "image": "train", **container}
        spec = {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}], "containers": [box]}
        self.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    def until_phase(self, name: str, *phases: str) -> Unstructured:
        self.until(lambda: self.pod(name)["status"]["phase"] in phases)
        return self.pod(name)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("up"))
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()


class TestRunning:
    def test_says_where_everything_is(self, up: Up) -> None:
        assert re.fullmatch(r"page      http://127\.0\.0\.1:\d+/\?token=\S+", up.lines[0])
        assert up.lines[1] == f"kubectl   export KUBECONFIG={up.kubeconfig}"
        assert up.lines[2] == "nodes     8 nodes with 40 GPUs (simulated)"

    def test_nobody_else_can_read_the_kubeconfig(self, up: Up) -> None:
        assert stat.S_IMODE(up.kubeconfig.stat().st_mode) == 0o600

    def test_nobody_comes_in_without_the_token(self, up: Up) -> None:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            up.call("GET", "/windlass/sandbox", token="")

    def test_a_gpu_pod_is_scheduled_and_runs(self, up: Up) -> None:
        up.start_pod("gpu", resources={"limits": {"nvidia.com/gpu": "2"}})
        pod = up.until_phase("gpu", "Running")
        assert pod["spec"]["nodeName"].startswith("h100-")
        assert len(pod["metadata"]["annotations"]["windlass.dev/allocated-devices"].split(",")) == 2
        assert pod["metadata"]["annotations"]["windlass.dev/devices"]

    def test_a_pod_that_can_t_run_is_told_why(self, up: Up) -> None:
        up.start_pod("huge", resources={"limits": {"nvidia.com/gpu": "9"}})
        up.until(lambda: up.pod("huge")["status"].get("conditions"))
        condition = up.pod("huge")["status"]["conditions"][0]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
        assert "Insufficient nvidia.com/gpu" in condition["message"]

    def test_the_queue_kinds_are_there(self, up: Up) -> None:
        flavor = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ResourceFlavor",
            "metadata": {"name": "any"},
        }
        made = up.call("POST", "/apis/kueue.x-k8s.io/v1beta1/resourceflavors", flavor)
        assert made["metadata"]["uid"]

    def test_breaking_and_mending(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        def sandbox(*arguments: str) -> tuple[int, str, str]:
            code = run_command(cli, ["sandbox", "--kubeconfig", str(up.kubeconfig), *arguments], "windlass")
            printed = capsys.readouterr()
            return code, printed.out, printed.err

        assert sandbox()[1].startswith("Nothing is broken. 8 simulated nodes")
        code, out, _ = sandbox("fail", "gpu/h100-3:7", "--xid", "79")
        assert (code, "GPU has fallen off the bus" in out) == (0, True)
        assert up.call("GET", "/api/v1/nodes/h100-3")["status"]["allocatable"]["nvidia.com/gpu"] == "7"
        assert sandbox()[1].startswith("gpu/h100-3:7 ")
        assert sandbox("heal")[1] == "healed 1 fault\n"
        code, _, err = sandbox("fail", "gpu/nowhere:0")
        assert (code, "no simulated node 'nowhere'" in err) == (2, True)
        code, _, err = sandbox("fail", "node/cpu-0", "--xid", "3")
        assert (code, "a node has no Xid" in err) == (2, True)

    def test_every_link_to_the_page_is_a_new_one(self, up: Up, capsys: pytest.CaptureFixture[str]) -> None:
        def link() -> str:
            assert run_command(cli, ["page", "--kubeconfig", str(up.kubeconfig)], "windlass") == 0
            return capsys.readouterr().out

        (printed,) = (line.split()[1] for line in up.lines if line.startswith("page"))
        address = printed.partition("token=")[0]
        links = {printed, link().strip(), link().strip()}
        assert len(links) == 3
        assert all(re.fullmatch(re.escape(address) + r"token=[\w-]{32}", link) for link in links)


class TestEnding:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
    def test_exit_code(self, tmp_path: Path, number: int, code: int) -> None:
        up = Up(tmp_path, "--no-page")
        assert not any(line.startswith("page") for line in up.lines)
        assert run_command(cli, ["page", "--kubeconfig", str(up.kubeconfig)], "windlass") == 3
        assert up.stop(number) == code
        assert not [line for line in up.errors if "Traceback" in line]


CONFIGURATION = """\
apiVersion: windlass.dev/v1
kind: SchedulerConfiguration
schedulerNames: [windlass, lab]
nodeSelector: {kubernetes.io/hostname: h100-0}
minRunTime: 10m
"""


def test_the_configuration_is_used_and_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`why` of a running cluster answers for the scheduler that runs there; a dump has it, too."""
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION)
    up = Up(tmp_path, "--no-page", "--config", str(file))
    try:
        up.call("POST", "/api/v1/namespaces/default/pods", wide_pod())
        up.until(lambda: "0/1 nodes" in json.dumps(up.pod("wide")["status"]))
        path = "/api/v1/namespaces/windlass-system/configmaps/windlass-scheduler-configuration"
        text = up.call("GET", path)["data"]["config.yaml"]
        where = ["--kubeconfig", str(up.kubeconfig)]
        assert run_command(cli, ["why", "pod/wide", "-o", "json", *where], "windlass") == 1
        answer = json.loads(capsys.readouterr().out)
        assert run_command(cli, ["dump", str(tmp_path / "dump"), "--redact", "--rename", *where], "windlass") == 0
    finally:
        up.stop()
    published = yaml.safe_load(text)
    assert (published["minRunTime"], published["nodeSelector"]) == (
        "10m",
        {"kubernetes.io/hostname": "h100-0"},
    )
    assert published["schedulerNames"] == ["windlass", "default-scheduler", "lab"]
    assert answer["configuration"]["source"] == "published"
    assert [node["name"] for node in answer["nodes"]] == ["h100-0"]
    capsys.readouterr()
    assert run_command(cli, ["plan", "schedule", "--from", str(tmp_path / "dump"), "-o", "json"], "windlass") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["configuration"]["source"] == "published"
    (hold,) = planned["decisions"]
    assert "0/1 nodes are available" in hold["message"], "also by the new name of the node"


def wide_pod() -> Unstructured:
    box = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "64"}}}
    spec = {"containers": [box], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wide"}, "spec": spec}


def test_a_kept_cluster_comes_back(tmp_path: Path) -> None:
    state = ("--no-page", "--state", str(tmp_path / "state"))
    first = Up(tmp_path, *state)
    token = first.token
    first.start_pod("p", command=["sleep", "infinity"])
    before = first.until_phase("p", "Running")
    first.process.kill()
    first.process.wait()
    second = Up(tmp_path, *state)
    try:
        assert second.token == token, "the kubeconfig stays good"
        after = second.pod("p")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["nodeName"] == before["spec"]["nodeName"]
        assert after["status"]["phase"] == "Running"
        second.start_pod("q", command=["true"])
        second.until_phase("q", "Succeeded")
    finally:
        second.stop()


def damaged_state(folder: Path) -> int:
    """A state whose last write of two ConfigMaps can't be read; its version."""

    async def write() -> int:
        store, journal = open_state(folder)
        journal.start()
        for name in ("a", "b"):
            metadata = {"namespace": "default", "name": name, "uid": name}
            tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"for": name}}
            store.put("configmaps", ("default", name), tree)
            await store.wait_durable()
        await journal.close()
        return store.version

    version = asyncio.run(write())
    (log,) = folder.glob("state-*.log")
    log.write_bytes(log.read_bytes().replace(b'"for":"b"', b'"for":"c"'))
    return version


class TestDamagedState:
    def test_it_is_refused_and_a_repair_asks_first(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        damaged_state(tmp_path)
        command = ["up", "--state", str(tmp_path)]
        assert run_command(cli, command, "windlass") == 3
        error = capsys.readouterr().err
        assert "the cluster's state is damaged: record 2 at byte" in error
        assert f"windlass up --state {tmp_path} --repair" in error
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        assert run_command(cli, [*command, "--repair"], "windlass") == 2
        error = capsys.readouterr().err
        assert "1 object can be read. What is lost:" in error
        assert "  configmaps default/b, as of resource version 1002" in error
        assert "not repaired; nothing was changed" in error
        assert run_command(cli, command, "windlass") == 3

    def test_it_goes_on_without_what_is_lost(self, tmp_path: Path) -> None:
        version = damaged_state(tmp_path / "state")
        up = Up(tmp_path, "--no-page", "--state", str(tmp_path / "state"), "--repair", "--yes")
        try:
            maps = up.call("GET", "/api/v1/namespaces/default/configmaps")
        finally:
            up.stop()
        names = [item["metadata"]["name"] for item in maps["items"]]
        assert "a" in names
        assert "b" not in names
        assert int(maps["metadata"]["resourceVersion"]) > version
        assert any("damaged-1-state-000001.log" in line for line in up.errors)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--fleet", "nowhere.yaml"], "nowhere.yaml"),
            (["--gpus", "real", "--fleet", "{fleet}"], "--gpus real uses this machine"),
            (["--gpu-replicas", "2"], "--gpus real"),
            (["--gpus", "real", "--mps"], "--gpu-replicas"),
            (["--fleet", "{fleet}"], "memory is not given"),
            (["--from", "{empty}"], "contains no Node"),
            (["--repair"], "--repair needs --state"),
            (["--yes"], "--yes is for --repair"),
        ],
    )
    def test_one_line_and_exit_code_2(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
    ) -> None:
        fleet, empty = tmp_path / "fleet.yaml", tmp_path / "empty.json"
        pool = {"name": "x", "gpus": [{"model": "H1000", "count": 8}]}
        fleet.write_text(json.dumps({"apiVersion": "windlass.dev/v1", "kind": "Fleet", "spec": {"pools": [pool]}}))
        empty.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
        filled = [argument.format(fleet=fleet, empty=empty) for argument in arguments]
        assert run_command(cli, ["up", *filled], "windlass") == 2
        printed = capsys.readouterr()
        assert words in printed.err
        assert len(printed.err.splitlines()) == 1
