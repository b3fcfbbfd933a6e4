"""Plans moves of running pods that make room for waiting workloads, and confirms each answer with the engine.

    objects ─► baseline: decide ─► planner: search and sequence moves ─► baseline: decide after the moves ─► plan

`windlass plan defrag` calls `defrag_plan`. An answer counts only if the moves can be executed one after another without
over-committing a node, and `engine.decide` on the objects after the moves starts the workload, evicts nothing for it,
and still starts everything that would have started without them. The search is in `placement.defrag`, which has a
README.
"""

from __future__ import annotations

from windlass.defrag.planner import DefragRequest, defrag_plan

__all__ = ["DefragRequest", "defrag_plan"]
