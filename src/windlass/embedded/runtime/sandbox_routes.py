"""`/windlass/sandbox` on the embedded API server, behind its token: lists, injects and heals faults.

    GET   /windlass/sandbox            {"kind": "SandboxFaults", "items": […], "nodes": […]}
    POST  /windlass/sandbox            {"action": "fail" | "heal", "target": "gpu/h100-0:3", "xid": 79}
                                       → {"kind": "SandboxResult", "message": …}

`windlass sandbox` is its client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.runtime.faults import Faults
from windlass.model.errors import InputError
from windlass.model.names.windlass import WINDLASS_API_VERSION

PREFIX = "/windlass/sandbox"
_MAX_BODY_BYTES = 4096


class SandboxRequest(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    target: str = ""
    xid: int | None = None


def sandbox_handler(
    faults: Faults, nodes: Callable[[], list[str]]
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return _answer("SandboxFaults", items=faults.active_faults(), nodes=nodes())
        if request.method != "POST":
            raise ApiError(405, "MethodNotAllowed", "use GET or POST")
        return _answer("SandboxResult", message=execute(faults, await _read_request(request)))

    return handle


async def _read_request(request: web.BaseRequest) -> SandboxRequest:
    body = await request.content.read(_MAX_BODY_BYTES + 1)
    if len(body) > _MAX_BODY_BYTES:
        raise ApiError.bad_request(f"the request is larger than {_MAX_BODY_BYTES} bytes")
    try:
        return msgspec.json.decode(body, type=SandboxRequest)
    except msgspec.MsgspecError as error:
        raise ApiError.bad_request(f"not a sandbox request: {error}") from None


def execute(faults: Faults, request: SandboxRequest) -> str:
    try:
        if request.action == "fail":
            return faults.fail(request.target, request.xid)
        if request.action == "heal":
            return faults.heal(request.target)
    except InputError as error:
        raise ApiError.bad_request(str(error)) from None
    raise ApiError.bad_request(f"unknown action {request.action[:32]!r}: use fail or heal")


def _answer(kind: str, **fields: object) -> web.Response:
    document = {"apiVersion": WINDLASS_API_VERSION, "kind": kind, **fields}
    return web.Response(body=msgspec.json.encode(document), content_type="application/json")
