"""Logs as text, exec and attach over WebSocket: copies bytes between a client and the kubelet API.

Called by `subresources`. The first byte of a WebSocket message is the stream's number (Kubernetes' `v4` and
`v5.channel.k8s.io`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from aiohttp import WSMsgType, web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.runtime.kubelet_api import ExecRequest, ExecSession, KubeletApi, LogRequest
from windlass.embedded.server.query import bool_parameter, int_parameter
from windlass.model.unstructured import Unstructured

STDIN, ERROR, RESIZE, CLOSE = 0, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
MAX_MESSAGE_BYTES = 1 << 20
"""Of a WebSocket message; clients send input in pieces of some kilobytes."""
FIRST_OUTPUT_TIMEOUT_SECONDS = 0.5
"""How long an error may take to arrive before the response starts."""


_WEBSOCKET_REQUIRED = "Upgrade request required: exec and attach are served over WebSocket only"


async def serve_logs(request: web.BaseRequest, pod: Unstructured, kubelet_api: KubeletApi) -> web.StreamResponse:
    query = request.query
    log_request = LogRequest(
        container=container_of(pod, query.get("container", "")),
        follow=bool_parameter(query, "follow"),
        previous=bool_parameter(query, "previous"),
        tail_lines=_non_negative(request, "tailLines"),
        limit_bytes=_non_negative(request, "limitBytes"),
        since_seconds=_non_negative(request, "sinceSeconds"),
        since_time=query.get("sinceTime", ""),
        timestamps=bool_parameter(query, "timestamps"),
    )
    if not is_scheduled(pod):
        return web.Response(text="", content_type="text/plain")
    chunks = aiter(kubelet_api.logs(pod, log_request))
    first = asyncio.ensure_future(_next(chunks))
    await asyncio.wait([first], timeout=FIRST_OUTPUT_TIMEOUT_SECONDS)
    if first.done():
        first.result()  # raises an error while it can still be the response
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        chunk = await first
        while chunk is not None:
            await response.write(chunk)
            chunk = await _next(chunks)
        await response.write_eof()
    finally:
        first.cancel()
        close = getattr(chunks, "aclose", None)
        if close is not None:
            with contextlib.suppress(Exception):  # the stream is over
                await close()
    return response


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def serve_exec_or_attach(
    request: web.BaseRequest, pod: Unstructured, kubelet_api: KubeletApi, subresource: str
) -> web.StreamResponse:
    query = request.query
    container = container_of(pod, query.get("container", ""))
    if not is_scheduled(pod):
        raise ApiError.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    tty = bool_parameter(query, "tty")
    streams = {stream for stream, name in ((1, "stdout"), (2, "stderr")) if bool_parameter(query, name)}
    exec_request = ExecRequest(
        container=container,
        command=tuple(query.getall("command", ())),
        tty=tty,
        stdin=bool_parameter(query, "stdin"),
    )
    if subresource == "exec" and not exec_request.command:
        raise ApiError.bad_request("you must specify at least one command for the container")
    is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
    if subresource == "exec" and not is_socket:
        raise ApiError.bad_request(_WEBSOCKET_REQUIRED)
    session = await (kubelet_api.exec if subresource == "exec" else kubelet_api.attach)(pod, exec_request)
    if not is_socket:  # a client whose WebSocket failed retries with SPDY
        await session.close()
        raise ApiError.bad_request(_WEBSOCKET_REQUIRED)
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=MAX_MESSAGE_BYTES, heartbeat=30.0)
    try:
        await socket.prepare(request)
        await _copy_streams(socket, session, streams or {1, 2})
    finally:
        await session.close()
    return socket


async def _copy_streams(socket: web.WebSocketResponse, session: ExecSession, streams: set[int]) -> None:
    reader = asyncio.create_task(_receive_input(socket, session))
    writer = asyncio.create_task(_send_output(socket, session, streams))
    try:
        done, _ = await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        if writer not in done:
            return  # the client has disconnected
        code = writer.result()
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(bytes([ERROR]) + msgspec.json.encode(exit_status(code)))
    finally:
        for task in (reader, writer):
            task.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
        await socket.close()


async def _send_output(socket: web.WebSocketResponse, session: ExecSession, streams: set[int]) -> int:
    async for stream, chunk in session.output():
        if stream in streams and chunk:
            await socket.send_bytes(bytes([stream]) + chunk)
    return await session.exit_code()


async def _receive_input(socket: web.WebSocketResponse, session: ExecSession) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            data = str(message.data).encode()
        elif message.type is WSMsgType.BINARY:
            data = bytes(message.data)
        else:
            continue
        if not data:
            continue
        channel, rest = data[0], data[1:]
        if channel == STDIN:
            await session.write(rest)
        elif channel == RESIZE:
            _resize(session, rest)
        elif channel == CLOSE and rest[:1] == bytes([STDIN]):
            await session.end_input()


class _Size(msgspec.Struct):
    Width: int = 0
    Height: int = 0


def _resize(session: ExecSession, data: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError):  # ignore a malformed size
        size = msgspec.json.decode(data, type=_Size)
        session.resize(size.Width, size.Height)


def exit_status(code: int) -> Unstructured:
    """The Status that tells the client how the command ended."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def is_scheduled(pod: Unstructured) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def container_of(pod: Unstructured, requested: str) -> str:
    """The requested container, the only one, or the default one; else a 400 with Kubernetes' message."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    mains = [container["name"] for container in spec.get("containers") or []]
    inits = [container["name"] for container in spec.get("initContainers") or []]
    ephemerals = [container["name"] for container in spec.get("ephemeralContainers") or []]
    if requested:
        if requested not in (*mains, *inits, *ephemerals):
            raise ApiError.bad_request(f"container {requested} is not valid for pod {name}")
        return requested
    if len(mains) == 1:
        return str(mains[0])
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in mains:
        return str(default)
    message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(mains)}]"
    if inits:
        message += f" or one of the init containers: [{' '.join(inits)}]"
    raise ApiError.bad_request(message)


def _non_negative(request: web.BaseRequest, name: str) -> int | None:
    value = int_parameter(request.query, name)
    if value is not None and value < 0:
        problem = f'PodLogOptions "" is invalid: {name}: Invalid value: {value}: must be greater than or equal to 0'
        raise ApiError(422, "Invalid", problem)
    return value
