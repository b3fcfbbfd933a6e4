"""Logs of pods and commands inside them, from a server that speaks the exec protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web

from windlass.dump.container_logs import (
    ContainerRef,
    collect_host_logs,
    containers_of,
    read_logs,
    run_nvidia_smi,
)
from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.credentials import StaticCredentials
from windlass.kube.errors import Forbidden, ServerUnavailable
from windlass.kube.pod_exec import PROTOCOLS, ExecResult, exec_in_container

Answer = TypeVar("Answer")
OK = {"status": "Success"}
EXIT_9 = {"status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated with exit code 9"}
SMI = "NVML: Unknown Error"


class Exec:
    """An API server with one pod, in which commands print what is said here."""

    def __init__(self, printed: dict[str, str], ending: dict[str, Any], refuse: bool = False) -> None:
        self.printed, self.ending, self.refuse = printed, ending, refuse
        self.asked: list[dict[str, list[str]]] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            before = request.query.get("previous") == "true"
            return web.Response(text="before\n" if before else f"log of {request.query['container']}\n")
        if self.refuse:
            return web.json_response({"kind": "Status", "message": "no"}, status=403)
        if "application/json" in request.headers.get("Accept", ""):
            return web.Response(status=406)  # as the real one does
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        assert socket.ws_protocol == "v5.channel.k8s.io"
        command = request.query.getall("command")
        self.asked.append({"command": command, "container": request.query.getall("container")})
        text = self.printed.get(command[0])
        if text is None:
            missing = {
                "status": "Failure",
                "reason": "InternalError",
                "message": f'exec: "{command[0]}": not found',
            }
            await socket.send_bytes(b"\x03" + json.dumps(missing).encode())
        else:
            half = len(text) // 2
            await socket.send_bytes(b"\x01" + text[:half].encode())
            await socket.send_bytes(b"\x02" + text[half:].encode())
            await socket.send_bytes(b"\x03" + json.dumps(self.ending).encode())
        await socket.close()
        return socket


def asked(server: Exec, question: Callable[[KubeClient], Awaitable[Answer]]) -> Answer:
    async def run() -> Answer:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", server.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            port = runner.addresses[0][1]
            async with KubeClient(ClientConfig(f"http://127.0.0.1:{port}", StaticCredentials())) as client:
                return await question(client)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def smi(client: KubeClient) -> Awaitable[ExecResult]:
    return exec_in_container(client, "x", "p", "main", ("nvidia-smi", "-L"))


def test_both_streams_and_the_ending_come_back() -> None:
    server = Exec({"nvidia-smi": SMI}, EXIT_9)
    found = asked(server, smi)
    assert (found.text, found.succeeded) == (SMI, False)
    assert "exit code 9" in found.message
    assert server.asked == [{"command": ["nvidia-smi", "-L"], "container": ["main"]}]
    assert asked(Exec({"nvidia-smi": "fine"}, OK), smi).succeeded


def test_a_refusal_is_the_servers_answer() -> None:
    with pytest.raises(Forbidden):
        asked(Exec({}, OK, refuse=True), smi)


def test_a_server_that_is_away_is_no_traceback() -> None:
    async def run() -> ExecResult:
        async with KubeClient(ClientConfig("http://127.0.0.1:1", StaticCredentials())) as client:
            return await smi(client)

    with pytest.raises(ServerUnavailable):
        asyncio.run(run())


PLACE = ContainerRef("x", "p", "main", restarted=True, running=True, node="g1")


def test_logs_of_this_run_and_of_the_one_before() -> None:
    found = asked(Exec({}, OK), lambda client: read_logs(client, [PLACE]))
    assert {(log.container, log.text) for log in found} == {
        ("main", "log of main\n"),
        ("main.previous", "before\n"),
    }


def test_nvidia_smi_inside_running_containers_only() -> None:
    idle = ContainerRef("x", "p", "idle")
    logs, problems = asked(Exec({"nvidia-smi": SMI}, EXIT_9), lambda client: run_nvidia_smi(client, [PLACE, idle]))
    assert problems == []
    assert [(log.container, SMI in log.text) for log in logs] == [("main.nvidia-smi", True)]
    none, refused = asked(Exec({}, OK, refuse=True), lambda client: run_nvidia_smi(client, [PLACE]))
    assert none == []
    assert "403" in refused[0][0]
    assert refused[0][1].startswith("kubectl exec -n x p -c main")


def test_hosts_are_asked_through_the_stacks_pods() -> None:
    server = Exec({"nvidia-smi": "all well", "dmesg": "Xid 79"}, OK)
    found = asked(server, lambda client: collect_host_logs(client, [PLACE, PLACE]))
    assert {(one.node, one.source, one.text) for one in found} == {
        ("g1", "nvidia-smi", "all well"),
        ("g1", "dmesg", "Xid 79"),
    }
    assert len(server.asked) == 2


def test_containers_of_a_pod_with_holes_in_it() -> None:
    whole = {
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {"nodeName": "g1", "containers": [{"name": "main"}]},
        "status": {"containerStatuses": [{"name": "main", "restartCount": 2, "state": {"running": {}}}]},
    }
    assert containers_of(whole) == [PLACE]
    for broken in ({}, {"spec": None}, {"spec": {"containers": "x"}}, {"spec": {"containers": [1, {}]}}):
        assert containers_of(broken) == []
