"""The agent's answers to the operator: GPUs that are held out of service, and requests to reset or validate one.

The sidecar hands every change of its Node to `on_node` and calls `work` regularly. Held GPUs go into a file that the
plugin reads, so that they stay held while the sidecar restarts. A reset is refused while a pod holds the GPU. A
reboot is always refused: the agent has no right to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.model.digits import is_digits
from windlass.model.names.windlass import HELD_DEVICES_ANNOTATION, NODE_ANSWER_ANNOTATION, NODE_REQUEST_ANNOTATION
from windlass.node.atomic_file import write_atomically
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.health_journal import read_journal
from windlass.node.operator_link import NodeAnswer, NodeRequest, decode_answer, decode_request

HELD_FILE = "held-devices.json"
HELD_REASON = "taken out of service by the operator"


def read_held(state: Path) -> frozenset[str]:
    """UUIDs of the GPUs that the operator holds out of service."""
    try:
        return msgspec.json.decode((state / HELD_FILE).read_bytes(), type=frozenset[str])
    except (OSError, msgspec.MsgspecError):
        return frozenset()


class OperatorRequests:
    def __init__(
        self,
        backend: DeviceBackend,
        state: Path,
        *,
        holders: Callable[[], Mapping[str, Sequence[DeviceHolder]]],
        write_answer: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._backend, self._state, self._holders = backend, state, holders
        self._write_answer, self._log = write_answer, log
        self._pending: NodeRequest | None = None

    def on_node(self, node: Mapping[str, Any]) -> None:
        annotations = node.get("metadata", {}).get("annotations") or {}
        indices = {int(part) for part in annotations.get(HELD_DEVICES_ANNOTATION, "").split(",") if is_digits(part)}
        self._hold(indices)
        request = decode_request(annotations.get(NODE_REQUEST_ANNOTATION, ""))
        answer = decode_answer(annotations.get(NODE_ANSWER_ANNOTATION, ""))
        is_answered = request is None or (answer is not None and answer.id == request.id)
        self._pending = None if is_answered else request

    def work(self) -> None:
        """Carries the pending request out, if it can be now."""
        request = self._pending
        if request is None:
            return
        answer = self._carry_out(request)
        if answer is not None:
            self._log(f"operator: {request.action} of GPU {request.device}: {answer.state} {answer.message}".rstrip())
            self._write_answer(msgspec.json.encode(answer).decode())
            self._pending = None

    def _hold(self, indices: set[int]) -> None:
        known = read_held(self._state)
        if not indices and not known:
            return
        gpus = self._backend.inventory().gpus
        held = frozenset(gpu.uuid for at, gpu in enumerate(gpus) if at in indices)
        if held != known:
            write_atomically(self._state / HELD_FILE, msgspec.json.encode(sorted(held)))

    def _carry_out(self, request: NodeRequest) -> NodeAnswer | None:
        """None if there is no answer yet."""
        if request.action not in ("reset", "validate"):
            return NodeAnswer(request.id, "Failed", f"the node agent can't {request.action} its node")
        gpus = self._backend.inventory().gpus
        if not -1 <= request.device < len(gpus):
            return NodeAnswer(request.id, "Failed", f"there is no GPU {request.device}")
        uuids = [gpu.uuid for at, gpu in enumerate(gpus) if request.device in (-1, at)]
        if request.action == "validate":
            unhealthy = read_journal(self._state / "health.json").unhealthy
            return None if any(uuid in unhealthy for uuid in uuids) else NodeAnswer(request.id, "Done")
        return self._reset(request, uuids)

    def _reset(self, request: NodeRequest, uuids: list[str]) -> NodeAnswer:
        holders = self._holders()
        for uuid in uuids:
            if holders.get(uuid):
                return NodeAnswer(request.id, "Failed", f"{holders[uuid][0].pod} still uses the GPU")
        try:
            for uuid in uuids:
                self._backend.reset(uuid)
        except DeviceError as error:
            return NodeAnswer(request.id, "Failed", str(error))
        return NodeAnswer(request.id, "Done")


def answer_patch(answer: str) -> dict[str, str]:
    """The annotation that has the answer."""
    return {NODE_ANSWER_ANNOTATION: answer}
