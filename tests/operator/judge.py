"""Watches every write of the operator in a world, and says which invariant it breaks.

The invariants are those of docs/decisions/0042: one count of unavailable nodes, the way back stored first, one driver a
revision, a reason and a deadline for every wait, others' fields untouched, no repair on a node under change.
"""

from __future__ import annotations

import msgspec
from tests.operator.world import SimNode, World

from windlass.cli.install_operator_crds import operator_crds
from windlass.embedded.api.structural_schema import Walk, schema_errors
from windlass.model.names.windlass import CHANGE_TAINT, DRIVER_REVISION_LABEL, NOT_READY_GPU_TAINT, REPAIR_TAINT
from windlass.operator.kinds.base import node_count
from windlass.operator.kinds.fleet_change import FINAL_PHASES
from windlass.operator.kinds.reasons import REASONS, Reason
from windlass.operator.kinds.taken_over import original_labels, taken_over
from windlass.operator.writes import CreateObject, PatchNode, PutStatus, Write

SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    for crd in operator_crds()
}
OURS = (CHANGE_TAINT, REPAIR_TAINT, NOT_READY_GPU_TAINT)


def unavailable(world: World, stack: str) -> set[str]:
    """Nodes that take no GPU work now, counted apart from the code under test."""
    out = set()
    for name, node in world.nodes.items():
        gpu_node = world.objects["GPUNode"].get(name)
        record = gpu_node.status.change if gpu_node is not None else None
        is_open = record is not None and not record.result
        if (
            not node.is_ready
            or node.unschedulable
            or not node.allocatable
            or is_open
            or any(taint.key in OURS for taint in node.taints)
        ):
            out.add(name)
    for repair in world.objects["GPURepair"].values():
        if repair.status.phase in ("Draining", "Rebooting", "Validating") and repair.status.rung == "reboot":
            out.add(repair.spec.node)
    return out


class Judge:
    def __init__(self, world: World, stack: str) -> None:
        self.world, self.stack = world, stack
        self.most_unavailable = 0
        self.voluntary = 0

    @property
    def limit(self) -> int:
        spec = self.world.stack(self.stack).spec
        return max(1, node_count(spec.max_unavailable, len(self.world.nodes), round_up=False))

    def apply(self, write: Write) -> bool:
        """Lets the write take effect, and compares what was before with what is after."""
        world = self.world
        before = unavailable(world, self.stack)
        foreign = (
            {name: self._foreign(node) for name, node in world.nodes.items()} if isinstance(write, PatchNode) else {}
        )
        if isinstance(write, PatchNode):
            self._check_label(write)
        if isinstance(write, CreateObject) and write.kind == "GPURepair":
            self._check_repair(write)
        if isinstance(write, PutStatus):
            self._check_status(write)
        done = world.apply(write)
        after = unavailable(world, self.stack)
        self.most_unavailable = max(self.most_unavailable, len(after))
        if after - before and done:
            self.voluntary += 1
            assert len(after) <= self.limit, f"{write} leaves {len(after)} of {self.limit} unavailable"
        for name, was in foreign.items():
            assert self._foreign(world.nodes[name]) == was, f"{write} changed what belongs to others"
        self._check_one_change()
        return done

    def _foreign(self, node: SimNode) -> tuple[object, ...]:
        ours = ("windlass.dev/", "nvidia.com/mig.config")  # the second is how a MIG layout is asked for
        record = taken_over(node.annotations)
        # What was taken over counts as what it is given back as.
        given_back = {**node.labels, **original_labels(record, node.labels)} if record is not None else node.labels
        labels = {key: value for key, value in given_back.items() if not key.startswith(ours) and value is not None}
        taints = [taint for taint in node.taints if taint.key not in OURS]
        return labels, taints, node.unschedulable

    def _check_label(self, write: PatchNode) -> None:
        """The driver is chosen only as a record says which the server has, beside a way back which it has too."""
        wanted = write.labels.get(DRIVER_REVISION_LABEL)
        node = self.world.nodes[write.name]
        if CHANGE_TAINT in {taint.key for taint in write.taints or ()} - {taint.key for taint in node.taints}:
            record = self.world.gpu_node(write.name).status.change
            assert record is not None, f"{write.name} is tainted without a record"
            assert not record.result
        if wanted is None or DRIVER_REVISION_LABEL not in node.labels:
            return
        record = self.world.gpu_node(write.name).status.change
        assert record is not None, f"{write.name} is changed without a record"
        assert wanted == record.want
        assert record.previous or self.world.stack(self.stack).spec.driver.source == "gpu-operator"
        change = next((c for c in self.world.objects["FleetChange"].values() if c.metadata.uid == record.uid), None)
        assert change is None or change.status.from_ is not None, "the way back is not stored"
        assert node.labels[DRIVER_REVISION_LABEL] == record.previous or wanted == record.previous

    def _check_repair(self, write: CreateObject) -> None:
        node = write.body["spec"]["node"]
        gpu_node = self.world.objects["GPUNode"].get(node)
        record = gpu_node.status.change if gpu_node is not None else None
        if record is not None and not record.result:
            changes = [c for c in self.world.objects["FleetChange"].values() if c.metadata.uid == record.uid]
            assert not [c for c in changes if c.status.phase not in FINAL_PHASES], (
                f"a repair of {node}, which is under change"
            )
        device = write.body["spec"]["device"]
        assert device in self.world.nodes[node].faults, "a repair of what is well now"

    def _check_status(self, write: PutStatus) -> None:
        status = write.status
        tree = msgspec.json.decode(msgspec.json.encode(status))
        errors = schema_errors(tree, SCHEMAS[write.kind], "status", Walk(1_000_000))
        assert not (found := list(errors)), found
        states = [status] if write.kind in ("FleetChange", "GPURepair") else []
        if write.kind == "GPUNode":
            states = [step for step in status.steps if step.state not in ("Done", "NotOurs")]  # type: ignore[union-attr]
            if status.change is not None and not status.change.result:  # type: ignore[union-attr]
                states.append(status.change)  # type: ignore[union-attr]
        for state in states:
            phase = getattr(state, "phase", "")
            assert state.reason in set(Reason), state  # type: ignore[union-attr]
            assert state.reason in REASONS  # type: ignore[union-attr]
            if phase not in FINAL_PHASES and phase != "Returned":
                assert state.since, state  # type: ignore[union-attr]
                assert state.deadline, state  # type: ignore[union-attr]

    def _check_one_change(self) -> None:
        running = [c.name for c in self.world.objects["FleetChange"].values() if c.is_unfinished]
        assert len(running) <= 1, f"two changes at once: {running}"
