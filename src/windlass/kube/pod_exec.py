"""A command inside a container, through the API server: its output, and how it ended.

`dump.container_logs` asks for it. The server's exec endpoint speaks WebSocket: each message begins with one byte that
names the stream (1 output, 2 errors, 3 how it ended); nothing is ever sent in.
"""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ServerUnavailable, Status
from windlass.kube.request import Request

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The server picks the first that it knows; without stdin they do not differ."""
OUTPUT, ERRORS, ENDING = 1, 2, 3
MOST_BYTES = 1 << 20
"""Output beyond this is dropped."""


class ExecResult(msgspec.Struct, frozen=True):
    text: str
    """stdout and stderr, interleaved."""
    succeeded: bool
    message: str = ""
    """The server's message if the command failed or could not be started."""


async def exec_in_container(
    client: KubeClient,
    namespace: str,
    pod: str,
    container: str,
    command: tuple[str, ...],
    seconds: float = 20.0,
) -> ExecResult:
    """Runs the command to its end. Raises `ApiError` where the server refuses, `ServerUnavailable` where it doesn't
    answer in time."""
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    request = Request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/exec", tuple(query))
    try:
        async with asyncio.timeout(seconds), client.websocket(request, PROTOCOLS) as socket:
            return await _listen(socket)
    except TimeoutError:
        raise ServerUnavailable(f"{' '.join(command)} in {namespace}/{pod} did not end in {seconds:g} s") from None


async def _listen(socket: aiohttp.ClientWebSocketResponse) -> ExecResult:
    printed = bytearray()
    ending = _Ending()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        stream, body = message.data[0], message.data[1:]
        if stream in (OUTPUT, ERRORS) and len(printed) < MOST_BYTES:
            printed += body
        elif stream == ENDING:
            ending = _status(body)
            break
    text = printed[:MOST_BYTES].decode(errors="replace")
    return ExecResult(text, ending.reason == "" and ending.status in ("", "Success"), ending.message)


class _Ending(Status, frozen=True):
    status: str = ""


def _status(body: bytes) -> _Ending:
    try:
        return msgspec.json.decode(body, type=_Ending)
    except msgspec.MsgspecError:
        return _Ending(message=body.decode(errors="replace"), reason="Unreadable")
