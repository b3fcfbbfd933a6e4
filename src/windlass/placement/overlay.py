"""The overlay: a private copy of the state, on which a decision places pods, takes others away, and undoes both.

`placement.single_pod_placer` works through the queue on it, and whatever asks "what if" does so too: `checkpoint`,
try, `rollback`. The table's rows follow the overlay through a log of the nodes that changed.
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
from windlass.model.reasons import (
    WHY_BIND_REFUSED,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
    insufficient_bit,
)
from windlass.placement.decision_cache import DecisionCache
from windlass.placement.inter_pod import InterPodRules, has_inter_pod_rules
from windlass.placement.kernel_arrays import INFEASIBLE_SCORE, MAX_REQUESTS, SCORER, ScoringRule
from windlass.placement.kernels.scores import RANDOM, WINDLASS
from windlass.placement.preferences import preference_scores
from windlass.placement.score_table import ScoreTable
from windlass.placement.verdicts import Refusal, VerdictArrays, bits_of

# What freeing room on the node could cure; anything else is not a near miss.
_CURABLE = (
    sum(insufficient_bit(j) for j in range(MAX_REQUESTS))
    | WHY_GPU_DEVICE_ROOM
    | WHY_GPU_UNHEALTHY
    | WHY_MIG_NO_ROOM
)
INCURABLE_REASONS = np.uint64(((1 << 64) - 1) ^ _CURABLE)

MAX_INTERPRETED_NODE_CHECKS = 20_000
"""Nodes that are looked at by plain Python, one trial after the other, before loading the kernels pays."""


class AssumedPod(NamedTuple):
    """A pod that was put on a node here."""

    pod: Pod
    row: int
    """Of the table."""
    node: int
    grant: np.uint64


class RemovedPod(NamedTuple):
    """A running pod that was taken off its node here."""

    pod_row: int
    """Of the snapshot's pods."""
    node: int


class ForgottenPod(NamedTuple):
    """A pod that was placed here and taken off again, out of turn."""

    assumed: AssumedPod


class NodeBlocking(NamedTuple):
    """A node was closed to new pods (1), or opened again (-1)."""

    node: int
    sign: int


class RestoredPod(NamedTuple):
    """A pod that was taken off here and came back, out of turn."""

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
        """`recall`: what earlier decisions worked out. `state`: to start from, in place of the snapshot's."""
        self.snapshot, self.table, self.rule, self.kernels = snapshot, table, rule, kernels
        self.cache = cache or DecisionCache()
        self.cache.start_decision(snapshot)
        self.state = (state or snapshot.node_state).copy()
        self.changed_nodes: Ints = np.zeros(64, dtype=np.int64)
        self.changed_nodes_end = 0
        self._steps: list[OverlayStep] = []
        self._numbers: list[int] = []
        """A number for every step that no other step ever has."""
        self._next = 1
        self._looks = 0
        self._neighbours: InterPodRules | None = None
        self.has_affinity_terms = bool(snapshot.pods_with_affinity)
        """Whether some pod that is or was here has affinity terms, which other pods have to be checked against."""
        self._one = table.result_buffer(1)
        table.start_decision()
        kernels.refresh_all_nodes(self.state, table.memo, table.mix, rule)

    def expect_node_checks(self, node_checks: int) -> None:
        """So many more nodes are about to be looked at: who looks often soon wants compiled kernels."""
        self._looks += node_checks
        if self._looks > MAX_INTERPRETED_NODE_CHECKS:
            self.kernels = jit.kernels(small=False)

    def fork(self) -> Overlay:
        """A copy with a table of its own, to try things on while this one is in use. Its past can't be undone."""
        table = ScoreTable(self.snapshot, self.table.mix, self.table.scorer_selector)
        other = Overlay(self.snapshot, table, self.rule, self.kernels, state=self.state)
        other.has_affinity_terms = self.has_affinity_terms
        other._steps, other._numbers, other._next = list(self._steps), list(self._numbers), self._next
        return other

    # Trying and undoing

    def checkpoint(self) -> int:
        return len(self._steps)

    @property
    def version(self) -> int:
        """Where this is the same, everything here is the same: what was tried in between has been undone."""
        return self._numbers[-1] if self._numbers else 0

    def _note(self, step: OverlayStep) -> None:
        self._steps.append(step)
        self._numbers.append(self._next)
        self._next += 1

    def rollback(self, to: int) -> None:
        """Undo everything since the checkpoint, latest first."""
        back: dict[int, RemovedPod] = {}
        """Running pods that came back, whose going is perhaps undone as well: then both were nothing."""
        while len(self._steps) > to:
            step = self._steps.pop()
            self._numbers.pop()
            if isinstance(step, AssumedPod):
                self._exchange(step, 1)
            elif isinstance(step, ForgottenPod):
                self._exchange(step.assumed, -1)
            elif isinstance(step, NodeBlocking):
                self._close(step.node, -step.sign)
            elif isinstance(step, RemovedPod):
                if back.pop(step.pod_row, None) is None:
                    self._book(step, 1)
            elif isinstance(step.of, RemovedPod):
                back[step.of.pod_row] = step.of
            else:
                self._exchange(step.of.assumed, 1)
        for gone in back.values():
            self._book(gone, -1)

    def assume(self, pod: Pod, row: int, node: int) -> AssumedPod:
        """Put a pod that fits on the node."""
        device = int(self.table.cells.device[row, node])
        grant = self.kernels.add_pod_to_node(
            self.state, self.table.shapes, row, node, device, self.table.shapes[row, SCORER] == WINDLASS
        )
        placing = AssumedPod(pod, row, node, np.uint64(grant))
        self.has_affinity_terms = self.has_affinity_terms or has_pod_affinity(pod)
        self._note(placing)
        self._changed(node)
        if self._neighbours is not None:
            self._neighbours.add(pod, node)
        return placing

    def is_plain(self, pod: Pod) -> bool:
        """Whether only the nodes' own state decides where the pod goes: no rule between pods, and no preference."""
        is_refused = pod.key in self.snapshot.refusals.binds
        return not self.has_affinity_terms and not self._dislikes and not is_refused and is_node_local(pod)

    def place_all_or_none(self, pods: Sequence[Pod], rows: Sequence[int]) -> list[AssumedPod] | int:
        """Plain pods (with their rows of the table), each on the best node that is left, in one call; or, with nothing
        changed, the number of the first that finds none."""
        count, table = len(pods), self.table
        outcome = table.result_buffer(count)
        self.grow_changed_nodes(2 * count + 1)
        self.changed_nodes_end, verdicts = self.kernels.place_queue(
            self.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            np.array(rows, dtype=np.int64),
            np.array([0, count], dtype=np.int64),
            self.snapshot.decided_pods + self.checkpoint(),
            self.changed_nodes,
            self.changed_nodes_end,
            INCURABLE_REASONS,
            outcome,
        )
        if verdicts:
            return int(outcome.verdict_entry[0])
        nodes, grants = outcome.node[:count].tolist(), outcome.grant[:count].copy()
        self.record_assumed(pods, rows, nodes, grants)
        made = self._steps[-count:]
        return [step for step in made if isinstance(step, AssumedPod)]

    def last_kernel_refusal(self, shape: Shape) -> Refusal:
        """Why the pod found no node that `place_whole` has just named."""
        return Refusal(shape, self.snapshot.nodes, VerdictArrays.copy_from(self.table.result_buffer(1), 1), 0)

    def assume_unchecked(self, pod: Pod, row: int, node: int) -> AssumedPod:
        """Put a pod on the node whether it fits or not: somebody else has decided that it is there."""
        self.refresh(row)
        return self.assume(pod, row, node)

    def pod_rows(self) -> dict[str, int]:
        """Pod key → row of the snapshot's pods."""
        return self.cache.pod_rows(self.snapshot.pods)

    def remove_running(self, pod_row: int) -> None:
        """Take a running pod off its node, as if it had been evicted."""
        step = RemovedPod(pod_row, int(self.snapshot.pods.node[pod_row]))
        self._note(step)
        self._book(step, -1)

    def removed_pods(self) -> list[Pod]:
        """The running pods that are off their nodes here."""
        objects = self.snapshot.pods.objects
        return [objects[row] for row in self._rows_off()]

    def removed_rows(self) -> frozenset[int]:
        """Rows of the running pods that are not here any more."""
        return frozenset(self._rows_off())

    def _rows_off(self) -> dict[int, None]:
        rows: dict[int, None] = {}
        for step in self._steps:
            if isinstance(step, RemovedPod):
                rows[step.pod_row] = None
            elif isinstance(step, RestoredPod) and isinstance(step.of, RemovedPod):
                rows.pop(step.of.pod_row, None)
        return rows

    def restore_running(self, pod_row: int) -> None:
        """The opposite of `remove`, whatever was done since."""
        step = RemovedPod(pod_row, int(self.snapshot.pods.node[pod_row]))
        self._note(RestoredPod(step))
        self._book(step, 1)

    def assume_again(self, assumed: AssumedPod) -> None:
        """The opposite of `unseat`, whatever was done since."""
        self._note(RestoredPod(ForgottenPod(assumed)))
        self._exchange(assumed, -1)

    def forget(self, assumed: AssumedPod) -> None:
        """Take a pod that was placed here off its node again."""
        self._note(ForgottenPod(assumed))
        self._exchange(assumed, 1)

    def block_node(self, node: int, sign: int = 1) -> None:
        """The node takes no new pods; with -1 it does again."""
        self._note(NodeBlocking(node, sign))
        self._close(node, sign)

    def _close(self, node: int, sign: int) -> None:
        self.state.node_info[node, BLOCKED] += sign
        self._changed(node)

    def _exchange(self, placing: AssumedPod, sign: int) -> None:
        self.kernels.update_node_for_pod(
            self.state, self.table.shapes, placing.row, placing.node, placing.grant, sign
        )
        self._changed(placing.node)
        if self._neighbours is not None:
            change = self._neighbours.remove if sign > 0 else self._neighbours.add
            change(placing.pod, placing.node)

    def record_assumed(
        self, pods: Sequence[Pod], rows: Sequence[int], nodes: Sequence[int], grants: Iterable[np.uint64]
    ) -> None:
        """Note placements that a kernel has already made."""
        self._steps.extend(map(AssumedPod, pods, rows, nodes, grants))
        self._numbers.extend(range(self._next, self._next + len(pods)))
        self._next += len(pods)
        if self._neighbours is not None:
            for pod, node in zip(pods, nodes, strict=True):
                self._neighbours.add(pod, node)

    def grow_changed_nodes(self, entries: int) -> None:
        """Room in the log for a kernel that writes so many entries."""
        if self.changed_nodes_end + entries > len(self.changed_nodes):
            self.changed_nodes = np.concatenate(
                [self.changed_nodes, np.zeros(max(entries, len(self.changed_nodes)), dtype=np.int64)]
            )

    def _book(self, step: RemovedPod, sign: int) -> None:
        pods = self.snapshot.pods
        shape = self.snapshot.shapes[int(pods.shape[step.pod_row])]
        account_pod(self.state, step.node, shape, pods.grants[step.pod_row], self.snapshot.resources, sign)
        self._changed(step.node)
        if self._neighbours is not None:
            change = self._neighbours.add if sign > 0 else self._neighbours.remove
            change(pods.objects[step.pod_row], step.node)

    def _changed(self, node: int) -> None:
        self.kernels.refresh_node(self.state, self.table.memo, self.table.mix, self.rule, node)
        self.grow_changed_nodes(1)
        self.changed_nodes[self.changed_nodes_end] = node
        self.changed_nodes_end += 1

    # Looking

    def refresh(self, row: int) -> None:
        """Bring a row of the table up to the overlay."""
        table = self.table
        self.kernels.refresh_row(
            self.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            self.changed_nodes,
            self.changed_nodes_end,
            row,
        )

    def reasons(self, pod: Pod, row: int) -> Uint64s:
        """For every node why it can't take the pod now; 0 where it can."""
        self.refresh(row)
        cells = self.table.cells
        if not self.has_inter_pod_constraints(pod):
            alone: Uint64s = cells.why[row].copy()
            return self._without_refused(pod, alone)
        why: Uint64s = cells.why[row] | self.inter_pod_rules().reasons(pod, cells.static[row])
        return self._without_refused(pod, why)

    def _without_refused(self, pod: Pod, why: Uint64s) -> Uint64s:
        """With the nodes to which the API server has just refused to bind this very pod; changes `why` itself."""
        for node in self.bind_refused_nodes((pod,)):
            why[node] |= np.uint64(WHY_BIND_REFUSED)
        return why

    def bind_refused_nodes(self, pods: Iterable[Pod]) -> list[int]:
        """Nodes to which one of the pods may not be bound."""
        refused = self.snapshot.refusals.binds
        if not refused:
            return []
        index = self.snapshot.nodes.index
        names = (one.node for pod in pods for one in refused.get(pod.key, ()))
        return [index[name] for name in names if name in index]

    def has_inter_pod_constraints(self, pod: Pod) -> bool:
        """Whether rules between pods could keep this one off a node."""
        if not self.has_affinity_terms and not has_inter_pod_rules(pod):
            return False
        return self.inter_pod_rules().constrains(pod)

    def select_node(
        self, pod: Pod, row: int, why: Uint64s, sequence: int, allowed_nodes: Bools | None = None
    ) -> int:
        """The node to choose, given the reasons; -1 if none is left."""
        feasible = why == 0
        if allowed_nodes is not None:
            feasible &= allowed_nodes
        if not feasible.any():
            return -1
        if self.has_affinity_terms or self._dislikes or not is_node_local(pod):
            preferred = preference_scores(pod, self.snapshot.nodes, self.inter_pod_rules(), feasible)
            if preferred is not None:
                feasible &= preferred == preferred[feasible].max()
        table = self.table
        if self.rule.scorer == RANDOM:
            left = np.where(feasible, np.uint64(0), np.uint64(1))
            return int(
                self.kernels.choose_random_node(
                    self.state, table.shapes, table.cells, self.rule, row, sequence, left
                )
            )
        return int(np.argmax(np.where(feasible, table.cells.score[row], INFEASIBLE_SCORE - 1)))

    @cached_property
    def _dislikes(self) -> bool:
        """Whether some node would rather not have some pods."""
        taints = (taint for taints in self.snapshot.nodes.taint_sets for taint in taints)
        return any(taint.effect == "PreferNoSchedule" for taint in taints)

    def explain_refusal(self, row: int, shape: Shape, why: Uint64s) -> Refusal:
        """The same account of the row as the compiled loop gives, with the rules between pods in it."""
        cells = self.table.cells
        between = why & ~cells.why[row]
        if not between.any():  # the row has its own account, and nothing is added to it
            return self._account(row, shape)
        kept_why, kept_counts = cells.why[row].copy(), cells.counts[row].copy()
        cells.why[row] = why
        bits = int(np.bitwise_or.reduce(between))
        for bit in bits_of(bits):
            cells.counts[row, bit] += np.count_nonzero(between >> np.uint64(bit) & np.uint64(1))
        found = self._account(row, shape)
        cells.why[row], cells.counts[row] = kept_why, kept_counts
        return found

    def _account(self, row: int, shape: Shape) -> Refusal:
        table = self.table
        self.kernels.write_verdict(
            self.state, table.shapes, table.cells, self._one, row, 0, INCURABLE_REASONS
        )
        return Refusal(shape, self.snapshot.nodes, VerdictArrays.copy_from(self._one, 1), 0)

    def inter_pod_rules(self) -> InterPodRules:
        """The pods that are bound, and those placed so far, as others see them; made when first needed."""
        if self._neighbours is None:
            pods = self.snapshot.pods
            gone = self._rows_off()
            bound = np.flatnonzero((pods.node >= 0) & (pods.alive == 1)).tolist()
            there = [(pods.objects[row], int(pods.node[row])) for row in bound if row not in gone]
            there += [(placing.pod, placing.node) for placing in self.assumed_pods()]
            self._neighbours = InterPodRules(self.snapshot.nodes, self.snapshot.listers, there)
        return self._neighbours

    def assumed_pods(self) -> list[AssumedPod]:
        """Pods that were placed on this overlay and are still there."""
        placed: dict[int, AssumedPod] = {}
        for step in self._steps:
            if isinstance(step, AssumedPod):
                placed[id(step)] = step
            elif isinstance(step, ForgottenPod):
                placed.pop(id(step.assumed), None)
            elif isinstance(step, RestoredPod) and isinstance(step.of, ForgottenPod):
                placed[id(step.of.assumed)] = step.of.assumed
        return list(placed.values())
