"""Takes a GPUStack away again: its parts are given back, and what is ours on its nodes goes.

Used by `windlass stack release`. Everything is found on the objects themselves, so that it goes on where an earlier
call was killed, and needs no operator. The stack goes first: an operator that lives again must find nothing to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.operator_client import patch_spec
from windlass.cli.output import print_note
from windlass.cli.plan_change import live_trees
from windlass.model.errors import InputError, WindlassError
from windlass.model.names.windlass import (
    CHANGE_TAINT,
    DRIVER_REVISION_LABEL,
    HELD_DEVICES_ANNOTATION,
    NODE_REQUEST_ANNOTATION,
    NOT_READY_GPU_TAINT,
    REPAIR_TAINT,
    REPAIR_UNTIL_ANNOTATION,
    TAKEN_OVER_ANNOTATION,
)

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.operator.kinds.gpu_stack import GPUStack
    from windlass.operator.observed import NodeView, Observed

POLL_SECONDS = 1.0
ATTEMPTS = 5
"""For a node that somebody else changes at the same time."""


@dataclass
class Release:
    client: KubeClient
    name: str
    observed: Observed
    stack: GPUStack | None
    nodes: dict[str, NodeView] = field(default_factory=dict)

    @classmethod
    async def read(cls, client: KubeClient, name: str) -> Release:
        """Raises an `InputError` if nothing in the cluster is of that stack."""
        from windlass.operator.dump_view import observed_from

        observed = observed_from(await live_trees(client))
        stack = next((stack for stack in observed.stacks if stack.name == name), None)
        found = cls(client, name, observed, stack)
        found.nodes = {node.name: node for node in observed.nodes.values() if found._has_traces(node)}
        if stack is None and not found.nodes:
            names = ", ".join(stack.name for stack in observed.stacks) or "none"
            raise InputError(f"there is no GPUStack {name!r}, and no node was of it", remedy=f"there are: {names}")
        return found

    def _has_traces(self, node: NodeView) -> bool:
        from windlass.operator.kinds.taken_over import taken_over

        gpu_node, record = self.observed.gpu_nodes.get(node.name), taken_over(node.annotations)
        return (gpu_node is not None and gpu_node.status.stack == self.name) or (
            record is not None and record.stack == self.name
        )

    def lines(self, *, abandon: bool) -> Iterator[str]:
        """What is about to be done. Raises an `InputError` if a change is unfinished, unless all is abandoned."""
        unfinished = [change.name for change in self._changes() if change.is_unfinished]
        if unfinished and not abandon:
            remedy = f"windlass change rollback {unfinished[0]}, or give it up with --abandon"
            raise InputError(f"change {unfinished[0]} of stack {self.name} is unfinished", remedy=remedy)
        who = "from here" if abandon else "by the operator"
        for name, node in self.nodes.items():
            from windlass.operator.kinds.taken_over import paused_label, taken_over

            record = taken_over(node.annotations)
            given = ", ".join(f"{label}={value or ''}" for label, value in (record.labels if record else {}).items())
            words = f"{given} {who}" if given else "nothing was taken over"
            paused = f"; first wait for {paused_label(node.labels)}" if paused_label(node.labels) else ""
            driver = node.labels.get(DRIVER_REVISION_LABEL, "")
            yield f"{name}: {words}{paused}" + (f"; driver {driver} stays" if driver else "")

    def _changes(self) -> list[Any]:
        return [change for change in self.observed.changes if change.spec.stack == self.name]

    async def ask_operator(self, until: float) -> None:
        """Lets the operator give all parts back, and waits for it."""
        if self.stack is None:
            return
        await patch_spec(self.client, "GPUStack", self.name, {"takeOver": []})
        while True:
            nodes = [await self._node(name) for name in self.nodes]
            left = [node.name for node in nodes if node is not None and TAKEN_OVER_ANNOTATION in node.annotations]
            if not left:
                return
            if time.monotonic() > until:
                words = f"the operator has not given back {', '.join(left[:4])} (windlass stack explain {left[0]})"
                raise WindlassError(f"{words}; without the operator: windlass stack release {self.name} --abandon")
            await asyncio.sleep(POLL_SECONDS)

    async def remove_traces(self) -> int:
        """The stack, its changes and repairs, what is ours on its nodes, and their GPUNodes. 1 if a node is left."""
        await self._delete("GPUStack", self.name)
        for change in self._changes():
            await self._delete("FleetChange", change.name)
        for repair in self.observed.repairs:
            if repair.spec.node in self.nodes:
                await self._delete("GPURepair", repair.name)
        left = [name for name in self.nodes if not await self._clean(name)]
        for name in self.nodes:
            if name not in left:
                await self._delete("GPUNode", name)
        if left:
            print_note(f"not given back: {', '.join(left)}; repeat this when gpu-operator has restored its parts")
        else:
            print_note(f"GPUStack {self.name} is gone, and {len(self.nodes)} nodes are as they were")
        return 1 if left else 0

    async def _clean(self, name: str) -> bool:
        from windlass.kube.errors import Conflict
        from windlass.operator.kinds.taken_over import paused_label, taken_over

        for _ in range(ATTEMPTS):
            node = await self._node(name)
            if node is None:
                return True
            if taken_over(node.annotations) is not None and paused_label(node.labels):
                click.echo(f"{name}: {paused_label(node.labels)} is to be restored first")
                return False
            try:
                await self._patch(node)
            except Conflict:
                continue
            return True
        return False

    async def _patch(self, node: NodeView) -> None:
        from windlass.kube.request import STRATEGIC_PATCH, Request
        from windlass.kube.resources import NODES
        from windlass.operator.apply import patch_node
        from windlass.operator.decide.pool import NodePatch
        from windlass.operator.kinds.taken_over import original_labels, taken_over
        from windlass.operator.observed import GPU_READY_CONDITION

        record = taken_over(node.annotations)
        key = self.stack.spec.not_ready_taint if self.stack is not None else NOT_READY_GPU_TAINT
        ours = (TAKEN_OVER_ANNOTATION, HELD_DEVICES_ANNOTATION, REPAIR_UNTIL_ANNOTATION, NODE_REQUEST_ANNOTATION)
        write = NodePatch(
            labels=original_labels(record, node.labels) if record is not None else {},
            annotations=dict.fromkeys(ours),
            taints=dict.fromkeys((CHANGE_TAINT, REPAIR_TAINT, key)),
        ).write(node)
        if write is not None:
            await self.client.send(patch_node(write))
        if node.gpu_ready_condition:
            gone = {"status": {"conditions": [{"type": GPU_READY_CONDITION, "$patch": "delete"}]}}
            path = NODES.path(node.name, "status")
            await self.client.send(Request("PATCH", path, body=gone, content_type=STRATEGIC_PATCH))

    async def _node(self, name: str) -> NodeView | None:
        from windlass.kube.errors import NotFound
        from windlass.kube.resources import NODES
        from windlass.operator.cache import observed_object

        try:
            tree = await self.client.get(NODES.path(name))
        except NotFound:
            return None
        return observed_object({**tree, "apiVersion": "v1", "kind": "Node"})  # type: ignore[return-value]  # by its kind

    async def _delete(self, kind: str, name: str) -> None:
        from windlass.kube.errors import NotFound
        from windlass.kube.request import Request
        from windlass.operator.resources import OPERATOR_RESOURCES

        with suppress(NotFound):
            await self.client.send(Request("DELETE", OPERATOR_RESOURCES[kind].path(name)))
