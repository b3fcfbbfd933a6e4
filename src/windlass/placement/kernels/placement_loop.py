"""The placement loop: for each pod in order, refresh its row of the score table, choose a node, and take its
resources there, or write a verdict.

`placement.single_pod_placer` (units of one pod) and `Overlay.place_all_or_none` (one unit) call `place_queue` for pods
that only node-local state decides on; the overlay calls the smaller kernels for the others. A unit is placed whole or
undone.

Invariant: a cell is valid while its stamp equals the digest of its node. The log lists the nodes that changed in this
decision, so that a row has to look only at the nodes logged since it was last refreshed (its cursor).
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import (
    BLOCKED,
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    USED_SLICES,
    Ints,
    NodeState,
    Uint64s,
)
from windlass.model.reasons import FIRST_RESOURCE_BIT, WHY_NOT_UNDERSTOOD
from windlass.placement.kernel_arrays import (
    FIRST_REQUEST,
    GPUS,
    INFEASIBLE_SCORE,
    KIND,
    MAX_REQUESTS,
    MIG_REQUEST,
    NEAREST_NODES,
    NODES_PER_BLOCK,
    REQUEST_COUNT,
    SCORER,
    Cells,
    MixArrays,
    NodeMemo,
    PlacementArrays,
    ScoringRule,
)
from windlass.placement.kernels.devices import (
    FITS,
    device_reasons,
    has_geometry,
    max_shares_of_device,
    milli_needed,
    model_allowed,
    pick_devices,
    pick_instances,
    release_or_retake_devices,
    shares_in,
)
from windlass.placement.kernels.scores import FGD, RANDOM, WINDLASS, cell_score, fgd_node_fragment
from windlass.placement.kernels.windlass_scorer import node_worth

NOT_UNDERSTOOD = np.uint64(WHY_NOT_UNDERSTOOD)
ONE = np.uint64(1)
LOW_HALF = np.uint64((1 << FIRST_RESOURCE_BIT) - 1)


def mix_bits(x: np.uint64) -> np.uint64:
    """Hash of a 64-bit word (the finaliser of splitmix64)."""
    # Wraps around on purpose; callers of the interpreted kernels silence numpy's overflow warning.
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def node_digest(nodes: NodeState, n: int) -> np.uint64:
    """Hash of everything that placement changes on a node. Never 0, which marks a cell that was never computed."""
    word = np.uint64(0)
    for column in range(nodes.free.shape[1]):
        word = mix_bits(word ^ np.uint64(nodes.free[n, column]))
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        word = mix_bits(
            word
            ^ np.uint64(nodes.device_occupancy[device, FREE_MILLI])
            ^ (np.uint64(nodes.device_occupancy[device, USED_SLICES]) << np.uint64(32))
        )
    for kind in range(nodes.gpu_pod_counts.shape[1]):
        if nodes.gpu_pod_counts[n, kind] > 0:
            # Only whether a kind of pod runs here: no scorer asks how many.
            word = mix_bits(word ^ np.uint64(kind + 1))
    return mix_bits(word ^ np.uint64(nodes.node_info[n, BLOCKED])) | ONE


def refresh_node(nodes: NodeState, memo: NodeMemo, mix: MixArrays, rule: ScoringRule, n: int) -> None:
    """After a change of node `n`: its digest, and its worth before a pod is added, for scorers that use differences."""
    memo.digest[n] = node_digest(nodes, n)
    if rule.scorer == FGD:
        memo.worth[n] = fgd_node_fragment(nodes, n, mix)
    elif rule.scorer == WINDLASS:
        memo.value[n] = node_worth(nodes, n, mix)


def refresh_all_nodes(nodes: NodeState, memo: NodeMemo, mix: MixArrays, rule: ScoringRule) -> None:
    """Bring the memo up to a new snapshot; only nodes that changed are computed again."""
    for n in range(memo.digest.shape[0]):
        if memo.digest[n] != node_digest(nodes, n):
            refresh_node(nodes, memo, mix, rule, n)


def node_reasons(nodes: NodeState, shapes: Ints, s: int, n: int, static: np.uint64) -> np.uint64:
    """All node-local reasons why node `n` can't take shape `s`; 0 if it can."""
    why = static
    if nodes.node_info[n, BLOCKED] > 0:
        # Nodes that a what-if has closed (`Overlay.block_node`) carry this reason, too.
        why |= NOT_UNDERSTOOD
    for j in range(shapes[s, REQUEST_COUNT]):
        if shapes[s, FIRST_REQUEST + 2 * j + 1] > nodes.free[n, shapes[s, FIRST_REQUEST + 2 * j]]:
            if j == shapes[s, MIG_REQUEST] and has_geometry(nodes, n):
                continue  # instances are created on demand, so none are advertised
            why |= ONE << np.uint64(FIRST_RESOURCE_BIT + j)
    if shapes[s, GPUS] > 0:
        why |= device_reasons(nodes, shapes, s, n)
    return why


def count_changes(counts: Ints, old: np.uint64, new: np.uint64) -> None:
    """Update the row's counts by reason after one node went from reasons `old` to `new`."""
    changed = old ^ new
    bit = 0
    # Mostly only resource bits change, which are in the high half.
    if changed & LOW_HALF == FITS:
        changed >>= np.uint64(FIRST_RESOURCE_BIT)
        bit = FIRST_RESOURCE_BIT
    while changed > FITS:
        if changed & ONE:
            counts[bit] += 1 if (new >> np.uint64(bit)) & ONE else -1
        changed >>= ONE
        bit += 1


def refresh_cell(
    nodes: NodeState,
    shapes: Ints,
    cells: Cells,
    memo: NodeMemo,
    mix: MixArrays,
    rule: ScoringRule,
    s: int,
    n: int,
) -> None:
    """Recompute one cell, and what the row keeps of it: counts by reason, and the best score of the block."""
    why = node_reasons(nodes, shapes, s, n, cells.static[s, n])
    if why != cells.why[s, n]:
        count_changes(cells.counts[s], cells.why[s, n], why)
        cells.why[s, n] = why
    old = cells.score[s, n]
    score, device = INFEASIBLE_SCORE, -1
    if why == FITS:
        score, device = cell_score(nodes, shapes, memo, mix, rule, s, n)
    cells.score[s, n], cells.device[s, n] = score, device
    cells.stamp[s, n] = memo.digest[n]
    block = n // NODES_PER_BLOCK
    if score >= cells.block[s, block]:
        cells.block[s, block] = score
    elif old == cells.block[s, block]:  # the block's best got worse: look at the whole block
        best = score
        for other in range(block * NODES_PER_BLOCK, min((block + 1) * NODES_PER_BLOCK, cells.score.shape[1])):
            best = max(best, cells.score[s, other])
        cells.block[s, block] = best


def refresh_row(
    nodes: NodeState,
    shapes: Ints,
    cells: Cells,
    memo: NodeMemo,
    mix: MixArrays,
    rule: ScoringRule,
    log: Ints,
    end: int,
    s: int,
) -> None:
    """Refresh a row up to the log's end; on its first use in a decision it is compared with every node."""
    if cells.cursor[s] < 0:
        for n in range(memo.digest.shape[0]):
            if cells.stamp[s, n] != memo.digest[n]:
                refresh_cell(nodes, shapes, cells, memo, mix, rule, s, n)
    else:
        # A node may be logged several times: from the second time on, its stamp is current.
        for i in range(cells.cursor[s], end):
            if cells.stamp[s, log[i]] != memo.digest[log[i]]:
                refresh_cell(nodes, shapes, cells, memo, mix, rule, s, log[i])
    cells.cursor[s] = end


def choose_best_node(cells: Cells, s: int) -> int:
    """The node with the best score, the lowest row on ties; -1 if none fits."""
    best, found = INFEASIBLE_SCORE, -1
    for block in range(cells.block.shape[1]):
        # Strictly greater: of equals the first block and its first node win, so ties go to the lowest row.
        if cells.block[s, block] > best:
            best, found = cells.block[s, block], block
    if found < 0:
        return -1
    n = found * NODES_PER_BLOCK
    while cells.score[s, n] != best:
        n += 1
    return n


def choose_random_node(
    nodes: NodeState, shapes: Ints, cells: Cells, rule: ScoringRule, s: int, sequence: int, why: Uint64s
) -> int:
    """One of the nodes without a reason, uniformly (the largest hash of seed, sequence and row wins); for a share also
    its device."""
    best, found = np.uint64(0), -1
    salt = mix_bits(mix_bits(np.uint64(rule.seed)) + np.uint64(sequence))
    for n in range(why.shape[0]):
        if why[n] == FITS:
            # Never 0, which is what `best` starts with.
            draw = mix_bits(salt + np.uint64(n)) | ONE
            if draw > best:
                best, found = draw, n
    if found >= 0 and cells.device[s, found] >= 0:
        cells.device[s, found] = random_device(nodes, shapes, s, found, mix_bits(best))
    return found


def random_device(nodes: NodeState, shapes: Ints, s: int, n: int, draw: np.uint64) -> int:
    """One of the devices that fit: the first round counts them, the second picks one."""
    first, end = nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]
    fitting = 0
    for attempt in range(2):
        # 31 bits of the draw, so that the signed number is not negative.
        pick = np.int64(draw >> np.uint64(33)) % fitting if attempt == 1 else -1
        for device in range(first, end):
            # Health needs no check: an unhealthy device has nothing free.
            fits = nodes.device_occupancy[device, FREE_MILLI] >= milli_needed(nodes, shapes, s, n, device)
            if not fits or not model_allowed(nodes, shapes, s, device):
                continue
            if attempt == 0:
                fitting += 1
            elif pick == 0:
                return device - first
            else:
                pick -= 1
    return -1


def add_pod_to_node(nodes: NodeState, shapes: Ints, s: int, n: int, device: int, islands: bool) -> np.uint64:
    """Take the resources of a pod of shape `s` on node `n`; returns its devices, packed."""
    for j in range(shapes[s, REQUEST_COUNT]):
        nodes.free[n, shapes[s, FIRST_REQUEST + 2 * j]] -= shapes[s, FIRST_REQUEST + 2 * j + 1]
    if shapes[s, GPUS] == 0:
        return np.uint64(0)
    nodes.gpu_pod_counts[n, shapes[s, KIND]] += 1
    if shapes[s, MIG_REQUEST] >= 0:
        return pick_instances(nodes, shapes, s, n)
    return pick_devices(nodes, shapes, s, n, device, islands)


def remove_pod_from_node(nodes: NodeState, shapes: Ints, s: int, n: int, packed: np.uint64) -> None:
    """Undo `add_pod_to_node`."""
    update_node_for_pod(nodes, shapes, s, n, packed, 1)


def update_node_for_pod(nodes: NodeState, shapes: Ints, s: int, n: int, packed: np.uint64, sign: int) -> None:
    """Release a pod's resources and devices (`sign` 1), or take the same ones again (`sign` -1)."""
    for j in range(shapes[s, REQUEST_COUNT]):
        nodes.free[n, shapes[s, FIRST_REQUEST + 2 * j]] += sign * shapes[s, FIRST_REQUEST + 2 * j + 1]
    if shapes[s, GPUS] > 0:
        nodes.gpu_pod_counts[n, shapes[s, KIND]] -= sign
        release_or_retake_devices(nodes, shapes, s, n, packed, sign)


def count_bits(why: np.uint64) -> int:
    count = 0
    while why > FITS:
        why &= why - ONE
        count += 1
    return count


def nearest_misses(cells: Cells, s: int, permanent: np.uint64, near: Ints) -> None:
    """The nodes with the fewest reasons, without those with a `permanent` reason, which no freed capacity removes."""
    near[:] = -1
    for n in range(cells.why.shape[1]):
        why = cells.why[s, n]
        if why & permanent:
            continue
        reasons = count_bits(why)
        for place in range(NEAREST_NODES):
            rival = near[place]
            # Strictly fewer: of equally near nodes the lowest row stays in front.
            if rival < 0 or reasons < count_bits(cells.why[s, rival]):
                for later in range(NEAREST_NODES - 1, place, -1):
                    near[later] = near[later - 1]
                near[place] = n
                break


def write_verdict(
    nodes: NodeState,
    shapes: Ints,
    cells: Cells,
    outcome: PlacementArrays,
    s: int,
    v: int,
    permanent: np.uint64,
) -> None:
    """Record why no node takes shape `s`, as the row stands now."""
    outcome.verdict_counts[v, :] = cells.counts[s]
    nearest_misses(cells, s, permanent, outcome.verdict_near[v])
    outcome.verdict_short[v, :, :] = 0
    outcome.verdict_free[v, :, :] = 0
    for place in range(NEAREST_NODES):
        n = outcome.verdict_near[v, place]
        # Places are filled from the front; what lies behind the first -1 is left over and never read.
        if n < 0:
            break
        outcome.verdict_near_why[v, place] = cells.why[s, n]
        for j in range(shapes[s, REQUEST_COUNT]):
            free = nodes.free[n, shapes[s, FIRST_REQUEST + 2 * j]]
            outcome.verdict_free[v, place, j] = free
            outcome.verdict_short[v, place, j] = max(0, shapes[s, FIRST_REQUEST + 2 * j + 1] - free)
        shares, most = 0, max_shares_of_device(nodes, shapes, s, n)
        for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
            if model_allowed(nodes, shapes, s, device) and shapes[s, MIG_REQUEST] < 0:
                shares += shares_in(
                    nodes.device_occupancy[device, FREE_MILLI],
                    milli_needed(nodes, shapes, s, n, device),
                    most,
                )
        outcome.verdict_free[v, place, MAX_REQUESTS] = shares
        outcome.verdict_short[v, place, MAX_REQUESTS] = max(0, shapes[s, GPUS] - shares)


def place_queue(
    nodes: NodeState,
    shapes: Ints,
    cells: Cells,
    memo: NodeMemo,
    mix: MixArrays,
    rule: ScoringRule,
    queue: Ints,
    units: Ints,
    sequence: int,
    log: Ints,
    log_end: int,
    permanent: np.uint64,
    outcome: PlacementArrays,
) -> tuple[int, int]:
    """Place the queue (shape rows, in order); unit u is queue[units[u]:units[u + 1]]. Returns the log's end and how
    many verdicts were written; entries of one shape that fail while no node has changed share a verdict."""
    verdicts = 0
    # By row of the score table: its last verdict, and how long the log was then.
    last_verdict = np.full(cells.cursor.shape[0], -1, dtype=np.int64)
    last_log = np.full(cells.cursor.shape[0], -1, dtype=np.int64)
    for unit in range(units.shape[0] - 1):
        first, end = units[unit], units[unit + 1]
        if end - first == 1 and last_log[queue[first]] == log_end:
            # No node has changed since a pod of this shape was refused.
            outcome.node[first], outcome.verdict[first] = -1, last_verdict[queue[first]]
            continue
        for i in range(first, end):
            s = queue[i]
            refresh_row(nodes, shapes, cells, memo, mix, rule, log, log_end, s)
            n = (
                choose_random_node(nodes, shapes, cells, rule, s, sequence + i, cells.why[s])
                if rule.scorer == RANDOM
                else choose_best_node(cells, s)
            )
            outcome.node[i], outcome.verdict[i] = n, -1
            if n >= 0:
                outcome.grant[i] = add_pod_to_node(
                    nodes, shapes, s, n, cells.device[s, n], shapes[s, SCORER] == WINDLASS
                )
                refresh_node(nodes, memo, mix, rule, n)
                log[log_end] = n
                log_end += 1
                continue
            # A larger unit may fail at a shape whose verdict is still true: no node has changed since.
            if last_log[s] != log_end:
                write_verdict(nodes, shapes, cells, outcome, s, verdicts, permanent)
                outcome.verdict_entry[verdicts] = i
                last_verdict[s], last_log[s] = verdicts, log_end
                verdicts += 1
            # One pod of the unit found no node: undo the others. All of them point to its verdict.
            for j in range(first, i):
                remove_pod_from_node(nodes, shapes, queue[j], outcome.node[j], outcome.grant[j])
                refresh_node(nodes, memo, mix, rule, outcome.node[j])
                # Logged like a placement: rows that were refreshed meanwhile have to look at the node again.
                log[log_end] = outcome.node[j]
                log_end += 1
            for j in range(first, end):
                outcome.node[j], outcome.verdict[j] = -1, last_verdict[s]
            break
    return log_end, verdicts
