"""`/windlass/sandbox` on the embedded API server, behind its token: lists, injects and heals faults.

    GET   /windlass/sandbox            {"kind": "SandboxFaults", "items": […], "nodes": […]}
    POST  /windlass/sandbox            {"action": "fail" | "heal", "target": "gpu/h100-0:3", "xid": 79}
                                       {"action": "driver", "target": "590.44.01", "xid": 119, "after": 5}
                                       → {"kind": "SandboxResult", "message": …}

`windlass sandbox` is its client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.runtime.faults import Faults
from windlass.embedded.runtime.simulated_drivers import DriverBehaviour, SimulatedDrivers
from windlass.embedded.runtime.simulated_nodes import SimulatedNodes
from windlass.model.errors import InputError
from windlass.model.names.windlass import WINDLASS_API_VERSION

PREFIX = "/windlass/sandbox"
_MAX_BODY_BYTES = 4096


class SandboxRequest(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    target: str = ""
    xid: int | None = None
    broken: bool = False
    load: float = 2.0
    after: float = 5.0


def sandbox_handler(
    nodes: SimulatedNodes,
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return _answer("SandboxFaults", items=nodes.faults.active_faults(), nodes=nodes.fleet.node_names())
        if request.method != "POST":
            raise ApiError(405, "MethodNotAllowed", "use GET or POST")
        asked = await _read_request(request)
        if asked.action == "driver":
            return _answer("SandboxResult", message=set_driver(nodes.drivers, asked))
        return _answer("SandboxResult", message=execute(nodes.faults, asked))

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


def set_driver(drivers: SimulatedDrivers, request: SandboxRequest) -> str:
    """Decides how a driver version behaves from now on, where it is loaded."""
    if not request.target or not 0 <= request.load <= 3600 or not 0 <= request.after <= 86_400:
        raise ApiError.bad_request("name the version, and give times within an hour and a day")
    behaviour = DriverBehaviour(request.load, request.broken, request.xid or 0, request.after)
    drivers.behaviours[request.target] = behaviour
    if behaviour.is_broken:
        return f"driver {request.target} never becomes ready"
    xid = f", and reports Xid {behaviour.xid} {behaviour.xid_after:g} s later" if behaviour.xid else ""
    return f"driver {request.target} loads in {behaviour.load_seconds:g} s{xid}"


def _answer(kind: str, **fields: object) -> web.Response:
    document = {"apiVersion": WINDLASS_API_VERSION, "kind": kind, **fields}
    return web.Response(body=msgspec.json.encode(document), content_type="application/json")
