"""Moves of running pods that make room for what waits, each answer confirmed by the engine itself.

    objects ─► scene: store, decide (what starts anyway) ─► planner: search, stage ─► scene: decide again ─► plan

`windlass plan defrag` calls it. An answer counts only if the moves can be made one after another without any node
being over-committed, and `decide` on the objects as they are afterwards starts the workload, evicts nobody for it, and
still starts everything that would have started without the moves.
"""

from __future__ import annotations

from windlass.defrag.planner import DefragRequest, defrag_plan

__all__ = ["DefragRequest", "defrag_plan"]
