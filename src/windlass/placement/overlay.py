"""The overlay: a private copy of the node state, on which a decision assumes and removes pods and undoes both.

`placement.single_pod_placer` and `placement.gang` place on it, and every what-if is `checkpoint`, try, `rollback`. The
rows of the score table follow the overlay through a log of the nodes that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from windlass import jit
from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import BLOCKED, Ints, NodeState, Uint64s
from windlass.cluster.pod_accounting import account_pod
from windlass.cluster.shape import Shape, has_pod_affinity, is_node_local
from windlass.cluster.snapshot import Snapshot
from windlass.model.pod import Pod
from windlass.model.reasons import PERMANENT_BITS, WHY_BIND_REFUSED
from windlass.placement.decision_cache import DecisionCache
from windlass.placement.inter_pod import InterPodRules, has_inter_pod_rules
from windlass.placement.kernel_arrays import INFEASIBLE_SCORE, SCORER, ScoringRule
from windlass.placement.kernels.scores import RANDOM, WINDLASS
from windlass.placement.preferences import preference_scores
from windlass.placement.score_table import ScoreTable
from windlass.placement.verdicts import NoNodeFound, VerdictArrays, bits_of

PERMANENT_REASONS = np.uint64(PERMANENT_BITS)
"""A node with one of these is not a near miss."""
MAX_INTERPRETED_NODE_CHECKS = 20_000
"""Node checks by plain Python in one decision; beyond this, loading the compiled kernels pays off."""


class AssumedPod(NamedTuple):
    """A pod that this decision has placed on a node."""

    pod: Pod
    row: int
    """Row of the score table."""
    node: int
    grant: np.uint64
    """Its devices, packed as in `kernels.devices`."""


class RemovedPod(NamedTuple):
    """A running pod that was removed from its node, as if evicted."""

    pod_row: int
    """Row of the snapshot's pods."""
    node: int


class ForgottenPod(NamedTuple):
    """An assumed pod that was removed again, other than by rollback."""

    assumed: AssumedPod


class NodeBlocking(NamedTuple):
    """A node was blocked for new pods (1), or unblocked (-1)."""

    node: int
    sign: int


class RestoredPod(NamedTuple):
    """A removed or forgotten pod that was put back, other than by rollback."""

    of: RemovedPod | ForgottenPod


OverlayStep = AssumedPod | RemovedPod | ForgottenPod | RestoredPod | NodeBlocking


class Overlay:
    def __init__(
        self,
        snapshot: Snapshot,
        table: ScoreTable,
        rule: ScoringRule,
        kernels: jit.Kernels,
        cache: DecisionCache | None = None,
        state: NodeState | None = None,
    ) -> None:
        """`cache`: values of earlier decisions. `state`: the state to start from, in place of the snapshot's."""
        self.snapshot, self.table, self.rule, self.kernels = snapshot, table, rule, kernels
        self.cache = cache or DecisionCache()
        self.cache.start_decision(snapshot)
        self.state = (state or snapshot.node_state).copy()
        self.changed_nodes: Ints = np.zeros(64, dtype=np.int64)
        self.changed_nodes_end = 0
        self._steps: list[OverlayStep] = []
        self._step_ids: list[int] = []
        """For every step a number that is never used again, also after rollback."""
        self._next_step_id = 1
        self._node_checks = 0
        self._inter_pod_rules: InterPodRules | None = None
        self.has_affinity_terms = bool(snapshot.pods_with_affinity)
        """Whether a pod on the overlay has, or had, affinity terms, which other pods have to be checked against."""
        self.now = 0
        """Seconds since 1970; `engine` sets it."""
        self.removes_stuck_pods = False
        """Whether `remove_running` also removes pods that should have ended and have not, for a what-if."""
        self._verdict_buffer = table.result_buffer(1)
        table.start_decision()
        # The memo is that of the last decision; only nodes that have changed since are computed again.
        kernels.refresh_all_nodes(self.state, table.memo, table.mix, rule)

    def expect_node_checks(self, node_checks: int) -> None:
        """Announce node checks; after many of them the overlay changes to compiled kernels."""
        self._node_checks += node_checks
        if self._node_checks > MAX_INTERPRETED_NODE_CHECKS:
            self.kernels = jit.kernels(small=False)

    def fork(self) -> Overlay:
        """A copy with its own score table, for what-ifs while this one is in use. Its earlier steps are final."""
        table = ScoreTable(self.snapshot, self.table.mix, self.table.scorer_selector)
        copy = Overlay(self.snapshot, table, self.rule, self.kernels, state=self.state)
        copy.has_affinity_terms, copy.now = self.has_affinity_terms, self.now
        copy._steps, copy._step_ids = list(self._steps), list(self._step_ids)
        copy._next_step_id = self._next_step_id
        return copy

    # Trying and undoing

    def checkpoint(self) -> int:
        return len(self._steps)

    @property
    def version(self) -> int:
        """Equal versions mean equal state: whatever was tried in between has been rolled back."""
        return self._step_ids[-1] if self._step_ids else 0

    def _record(self, step: OverlayStep) -> None:
        self._steps.append(step)
        self._step_ids.append(self._next_step_id)
        self._next_step_id += 1

    def rollback(self, to: int) -> None:
        """Undo everything since the checkpoint, latest first."""
        # Restored running pods whose restoring is undone. If their removal is undone too, the two cancel out and the
        # node is not touched; preemption searches remove and restore many pods.
        restored: dict[int, RemovedPod] = {}
        while len(self._steps) > to:
            step = self._steps.pop()
            self._step_ids.pop()
            if isinstance(step, AssumedPod):
                self._apply_assumed(step, 1)
            elif isinstance(step, ForgottenPod):
                self._apply_assumed(step.assumed, -1)
            elif isinstance(step, NodeBlocking):
                self._apply_blocking(step.node, -step.sign)
            elif isinstance(step, RemovedPod):
                if restored.pop(step.pod_row, None) is None:
                    self._apply_running(step, 1)
            elif isinstance(step.of, RemovedPod):
                restored[step.of.pod_row] = step.of
            else:
                self._apply_assumed(step.of.assumed, 1)
        for removed in restored.values():
            self._apply_running(removed, -1)

    def assume(self, pod: Pod, row: int, node: int, device: int | None = None) -> AssumedPod:
        """Place a pod that fits on the node; the row has to be refreshed. `device`: for a share, in place of the one
        that the scorer has chosen (-1: the first with room)."""
        if device is None:
            device = int(self.table.cells.device[self.slot(row), node])
        grant = self.kernels.add_pod_to_node(
            self.state, self.table.shapes, row, node, device, self.table.shapes[row, SCORER] == WINDLASS
        )
        assumed = AssumedPod(pod, row, node, np.uint64(grant))
        # Never unset, not even by rollback: taking terms into account where there are none changes nothing.
        self.has_affinity_terms = self.has_affinity_terms or has_pod_affinity(pod)
        self._record(assumed)
        self._node_changed(node)
        if self._inter_pod_rules is not None:
            self._inter_pod_rules.add(pod, node)
        return assumed

    def is_plain(self, pod: Pod) -> bool:
        """Whether only node-local state decides where the pod goes: no rules between pods, and no preferences."""
        is_refused = pod.key in self.snapshot.refusals.binds
        depends_on_others = self.has_affinity_terms or self._has_soft_taints
        return not depends_on_others and not is_refused and is_node_local(pod)

    def place_all_or_none(self, pods: Sequence[Pod], rows: Sequence[int]) -> list[AssumedPod] | int:
        """Place plain pods (with their rows of the score table), each on the best node, in one kernel call; on failure
        nothing is changed, and the index of the first pod without a node is returned. Of no more different rows than
        the table has cells for."""
        count, table = len(pods), self.table
        slots = table.slots(np.array(rows, dtype=np.int64))
        outcome = table.result_buffer(count)
        # Each pod may be logged twice: placed, and undone.
        self.grow_changed_nodes(2 * count + 1)
        self.changed_nodes_end, verdicts = self.kernels.place_queue(
            self.state,
            table.cell_shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            slots,
            np.array([0, count], dtype=np.int64),
            self.snapshot.decided_pods + self.checkpoint(),
            self.changed_nodes,
            self.changed_nodes_end,
            PERMANENT_REASONS,
            outcome,
        )
        if verdicts:
            return int(outcome.verdict_entry[0])
        nodes, grants = outcome.node[:count].tolist(), outcome.grant[:count].copy()
        self.record_assumed(pods, rows, nodes, grants)
        return [step for step in self._steps[-count:] if isinstance(step, AssumedPod)]

    def no_node_found_by_kernel(self, shape: Shape) -> NoNodeFound:
        """Why the pod that `place_all_or_none` has just returned found no node."""
        return NoNodeFound(shape, self.snapshot.nodes, VerdictArrays.copy_from(self.table.result_buffer(1), 1), 0)

    def assume_unchecked(self, pod: Pod, row: int, node: int) -> AssumedPod:
        """Place a pod on the node whether it fits or not: it was assigned there before this decision."""
        self.refresh(row)
        return self.assume(pod, row, node)

    def pod_rows(self) -> dict[str, int]:
        """Pod key → row of the snapshot's pods."""
        return self.cache.pod_rows(self.snapshot.pods)

    def remove_running(self, pod_row: int) -> None:
        """Remove a running pod from its node, as if it had been evicted. A pod that should have ended long ago stays:
        evicting it frees nothing."""
        if not self.removes_stuck_pods and pod_row in self.stuck_rows:
            return
        step = RemovedPod(pod_row, int(self.snapshot.pods.node[pod_row]))
        self._record(step)
        self._apply_running(step, -1)

    @cached_property
    def stuck_rows(self) -> frozenset[int]:
        """Rows of pods that are being deleted and should have ended some time ago. Their capacity stays in use."""
        pods = self.snapshot.pods
        bound = np.flatnonzero((pods.alive == 1) & (pods.node >= 0)).tolist()
        terminating = [row for row in bound if pods.objects[row].metadata.deletion_timestamp]
        return frozenset(row for row in terminating if pods.objects[row].is_stuck(self.now))

    def removed_pods(self) -> list[Pod]:
        """The running pods that are removed here."""
        objects = self.snapshot.pods.objects
        return [objects[row] for row in self._removed_in_order()]

    def removed_rows(self) -> frozenset[int]:
        """Rows of the running pods that are removed here."""
        return frozenset(self._removed_in_order())

    def _removed_in_order(self) -> dict[int, None]:
        rows: dict[int, None] = {}
        for step in self._steps:
            if isinstance(step, RemovedPod):
                rows[step.pod_row] = None
            elif isinstance(step, RestoredPod) and isinstance(step.of, RemovedPod):
                rows.pop(step.of.pod_row, None)
        return rows

    def restore_running(self, pod_row: int) -> None:
        """Undo `remove_running`, whatever was done since."""
        if not self.removes_stuck_pods and pod_row in self.stuck_rows:
            return
        step = RemovedPod(pod_row, int(self.snapshot.pods.node[pod_row]))
        self._record(RestoredPod(step))
        self._apply_running(step, 1)

    def assume_again(self, assumed: AssumedPod) -> None:
        """Undo `forget`, whatever was done since."""
        self._record(RestoredPod(ForgottenPod(assumed)))
        self._apply_assumed(assumed, -1)

    def forget(self, assumed: AssumedPod) -> None:
        """Remove an assumed pod from its node."""
        self._record(ForgottenPod(assumed))
        self._apply_assumed(assumed, 1)

    def block_node(self, node: int, sign: int = 1) -> None:
        """The node takes no new pods; -1 undoes that. Blocks are counted, so several may overlap."""
        self._record(NodeBlocking(node, sign))
        self._apply_blocking(node, sign)

    def _apply_blocking(self, node: int, sign: int) -> None:
        self.state.node_info[node, BLOCKED] += sign
        self._node_changed(node)

    def _apply_assumed(self, assumed: AssumedPod, sign: int) -> None:
        """Release the pod's resources (1), or take them again (-1)."""
        self.kernels.update_node_for_pod(self.state, self.table.shapes, assumed.row, assumed.node, assumed.grant, sign)
        self._node_changed(assumed.node)
        if self._inter_pod_rules is not None:
            change = self._inter_pod_rules.remove if sign > 0 else self._inter_pod_rules.add
            change(assumed.pod, assumed.node)

    def record_assumed(
        self, pods: Sequence[Pod], rows: Sequence[int], nodes: Sequence[int], grants: Iterable[np.uint64]
    ) -> None:
        """Record placements that a kernel has already made."""
        self._steps.extend(map(AssumedPod, pods, rows, nodes, grants))
        self._step_ids.extend(range(self._next_step_id, self._next_step_id + len(pods)))
        self._next_step_id += len(pods)
        if self._inter_pod_rules is not None:
            for pod, node in zip(pods, nodes, strict=True):
                self._inter_pod_rules.add(pod, node)

    def grow_changed_nodes(self, entries: int) -> None:
        """Make space in the log for a kernel that writes this many entries."""
        if self.changed_nodes_end + entries > len(self.changed_nodes):
            self.changed_nodes = np.concatenate(
                [self.changed_nodes, np.zeros(max(entries, len(self.changed_nodes)), dtype=np.int64)]
            )

    def _apply_running(self, step: RemovedPod, sign: int) -> None:
        """Put the running pod on its node (1), or take it off (-1)."""
        pods = self.snapshot.pods
        shape = self.snapshot.shapes[int(pods.shape[step.pod_row])]
        account_pod(self.state, step.node, shape, pods.grants[step.pod_row], self.snapshot.resources, sign)
        self._node_changed(step.node)
        if self._inter_pod_rules is not None:
            change = self._inter_pod_rules.add if sign > 0 else self._inter_pod_rules.remove
            change(pods.objects[step.pod_row], step.node)

    def _node_changed(self, node: int) -> None:
        self.kernels.refresh_node(self.state, self.table.memo, self.table.mix, self.rule, node)
        self.grow_changed_nodes(1)
        self.changed_nodes[self.changed_nodes_end] = node
        self.changed_nodes_end += 1

    # Filters and scores

    def slot(self, row: int) -> int:
        """Where the cells of a row are that was refreshed before, until another row is used. If they had to be dropped
        meanwhile, they are refreshed again."""
        return self.table.slot(row) if self.table.has_cells(row) else self.refresh(row)

    def refresh(self, row: int) -> int:
        """Bring a row of the score table up to the overlay's state; returns where its cells are."""
        table = self.table
        slot = table.slot(row)
        self.kernels.refresh_row(
            self.state,
            table.cell_shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            self.changed_nodes,
            self.changed_nodes_end,
            slot,
        )
        return slot

    def count_fits(self, row: int) -> Ints:
        """By node, how many pods of the row it takes now, node-local filters included."""
        counts, slot = np.zeros(self.snapshot.nodes.size, dtype=np.int64), self.table.slot(row)
        self.kernels.count_fits(self.state, self.table.cell_shapes, self.table.cells, slot, counts)
        return counts

    def reasons(self, pod: Pod, row: int) -> Uint64s:
        """For every node, the bits of the reasons why it can't take the pod now; 0 where it can."""
        slot, cells = self.refresh(row), self.table.cells
        # A copy: the reasons below are the pod's own, and the row belongs to all pods of its shape.
        why: Uint64s = cells.why[slot].copy()
        if self.has_inter_pod_constraints(pod):
            why |= self.inter_pod_rules().reasons(pod, cells.static[slot])
        for node in self.bind_refused_nodes((pod,)):
            why[node] |= np.uint64(WHY_BIND_REFUSED)
        return why

    def bind_refused_nodes(self, pods: Iterable[Pod]) -> list[int]:
        """Nodes to which the API server has recently refused to bind one of the pods."""
        refusals = self.snapshot.refusals.binds
        if not refusals:
            return []
        index = self.snapshot.nodes.index
        names = (refusal.node for pod in pods for refusal in refusals.get(pod.key, ()))
        return [index[name] for name in names if name in index]

    def has_inter_pod_constraints(self, pod: Pod) -> bool:
        """Whether rules between pods could exclude nodes for this pod."""
        if not self.has_affinity_terms and not has_inter_pod_rules(pod):
            return False
        return self.inter_pod_rules().constrains(pod)

    def select_node(self, pod: Pod, row: int, why: Uint64s, sequence: int, allowed_nodes: Bools | None = None) -> int:
        """The best node without a reason: by kube-scheduler's preferences, then by the policy's score; -1 if none."""
        feasible = why == 0
        if allowed_nodes is not None:
            feasible &= allowed_nodes
        if not feasible.any():
            return -1
        if self.has_affinity_terms or self._has_soft_taints or not is_node_local(pod):
            preferred = preference_scores(pod, self.snapshot.nodes, self.inter_pod_rules(), feasible)
            if preferred is not None:
                feasible &= preferred == preferred[feasible].max()
        table, slot = self.table, self.slot(row)
        if self.rule.scorer == RANDOM:
            # The kernel takes reasons; any bit will do.
            excluded = np.where(feasible, np.uint64(0), np.uint64(1))
            return int(
                self.kernels.choose_random_node(
                    self.state, table.cell_shapes, table.cells, self.rule, slot, sequence, excluded
                )
            )
        # argmax takes the lowest row on ties, as the compiled loop does.
        return int(np.argmax(np.where(feasible, table.cells.score[slot], INFEASIBLE_SCORE - 1)))

    @cached_property
    def _has_soft_taints(self) -> bool:
        taints = (taint for taints in self.snapshot.nodes.taint_sets for taint in taints)
        return any(taint.effect == "PreferNoSchedule" for taint in taints)

    def explain_no_node(self, row: int, shape: Shape, why: Uint64s) -> NoNodeFound:
        """What the compiled loop would write for the row, with the other reasons in `why` added."""
        cells, slot = self.table.cells, self.slot(row)
        added = why & ~cells.why[slot]
        if not added.any():
            return self._no_node_of_row(slot, shape)
        # The kernel reads the row of the table, which has node-local reasons only: add the others for this call.
        kept_why, kept_counts = cells.why[slot].copy(), cells.counts[slot].copy()
        cells.why[slot] = why
        for bit in bits_of(int(np.bitwise_or.reduce(added))):
            cells.counts[slot, bit] += np.count_nonzero(added >> np.uint64(bit) & np.uint64(1))
        found = self._no_node_of_row(slot, shape)
        cells.why[slot], cells.counts[slot] = kept_why, kept_counts
        return found

    def _no_node_of_row(self, slot: int, shape: Shape) -> NoNodeFound:
        table = self.table
        self.kernels.write_verdict(
            self.state, table.cell_shapes, table.cells, self._verdict_buffer, slot, 0, PERMANENT_REASONS
        )
        return NoNodeFound(shape, self.snapshot.nodes, VerdictArrays.copy_from(self._verdict_buffer, 1), 0)

    def inter_pod_rules(self) -> InterPodRules:
        """The rules between pods for the bound pods that are not removed, and the assumed ones."""
        if self._inter_pod_rules is None:
            pods = self.snapshot.pods
            removed = self._removed_in_order()
            bound = np.flatnonzero((pods.node >= 0) & (pods.alive == 1)).tolist()
            placed = [(pods.objects[row], int(pods.node[row])) for row in bound if row not in removed]
            placed += [(assumed.pod, assumed.node) for assumed in self.assumed_pods()]
            self._inter_pod_rules = InterPodRules(self.snapshot.nodes, self.snapshot.listers, placed)
        return self._inter_pod_rules

    def assumed_pods(self) -> list[AssumedPod]:
        """The assumed pods that were not forgotten, in order."""
        # By identity: the tuples of two pods may be equal.
        assumed: dict[int, AssumedPod] = {}
        for step in self._steps:
            if isinstance(step, AssumedPod):
                assumed[id(step)] = step
            elif isinstance(step, ForgottenPod):
                assumed.pop(id(step.assumed), None)
            elif isinstance(step, RestoredPod) and isinstance(step.of, ForgottenPod):
                assumed[id(step.of.assumed)] = step.of.assumed
        return list(assumed.values())
