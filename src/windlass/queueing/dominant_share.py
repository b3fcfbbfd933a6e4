"""Dominant resource share: how much more than its own quota a queue or cohort uses, of what its parent can lend.

`tournament` sorts by it, `fair_sharing_preemption` compares by it. It is the largest share over all resources, in
thousandths of what can be lent, divided by the node's weight. Shares are integers in fixed point, rounded up: equal
shares are equal on every machine, and a share is 0 only where nothing is borrowed.
"""

from __future__ import annotations

from typing import NamedTuple

from windlass.queueing.quota_node import FlavorResource, QuotaNode, Usage

# Thousandths, with 48 bits behind the binary point.
_SCALE = 1000 << 48


class DominantShare(NamedTuple):
    rank: tuple[bool, int]
    """Compare by this. A node of weight 0 that borrows ranks above all that have a weight."""
    borrowed: tuple[FlavorResource, ...]
    """What is used beyond the node's own quota."""

    @property
    def is_borrowing(self) -> bool:
        return bool(self.borrowed)

    def borrows_any(self, usage: Usage) -> bool:
        return any(usage.get(cell, 0) > 0 for cell in self.borrowed)


NO_SHARE = DominantShare((False, 0), ())
LOWEST_RANK = (False, -1)
"""Ranks below every share."""


def dominant_share(node: QuotaNode) -> DominantShare:
    """The share of a queue or cohort; 0 for a root, which has no parent to borrow from."""
    if node.parent is None:
        return NO_SHARE
    borrowed: dict[str, int] = {}
    cells = []
    for cell, quota in node.subtree_quota.items():
        beyond = node.usage.get(cell, 0) - quota
        if beyond > 0:
            # All flavors of a resource count together, as in Kueue.
            borrowed[cell[1]] = borrowed.get(cell[1], 0) + beyond
            cells.append(cell)
    if not cells:
        return NO_SHARE
    lendable = _lendable(node.parent)
    dominant = max((_ratio(amount, lendable.get(name, 0)) for name, amount in borrowed.items()), default=0)
    if not dominant:
        return DominantShare((False, 0), tuple(cells))
    if not node.weight_milli:
        return DominantShare((True, dominant), tuple(cells))
    return DominantShare((False, -(-dominant * 1000 // node.weight_milli)), tuple(cells))


def _ratio(amount: int, of: int) -> int:
    return -(-amount * _SCALE // of) if of > 0 else 0


def _lendable(node: QuotaNode) -> dict[str, int]:
    """Resource → what can be lent, over all flavors of the tree. It depends on quota alone, so it is computed once."""
    if not node.lendable:
        for cell in node.root.subtree_quota:
            node.lendable[cell[1]] = node.lendable.get(cell[1], 0) + node.potential_available(cell)
    return node.lendable
