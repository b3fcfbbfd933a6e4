"""Which owners use the GPUs of the candidate nodes: namespace, owner, how many, since when.

Called by `why`; `cli.why_text` prints them under the diagnosis.
"""

from __future__ import annotations

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import GpuHolder
from windlass.diagnose.fit import FitChecker
from windlass.diagnose.unschedulable import SchedulingAnalysis


def gpu_holders(evidence: Evidence, fit: FitChecker, analysis: SchedulingAnalysis) -> tuple[GpuHolder, ...]:
    """Owners of pods on the candidates, those with most GPUs first."""
    candidates = {candidate.node.name for candidate in analysis.candidates}
    held: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    for key, node, amount in fit.pods_holding(analysis.devices):
        namespace, name = key.split("/")
        item = evidence.get("Pod", namespace, name) if node in candidates else None
        if item is not None:
            held.setdefault((namespace, _owner(evidence, item)), []).append((amount, item.created, node))
    found = []
    for (namespace, owner), parts in held.items():
        amounts, created, names = zip(*parts, strict=True)
        found.append(GpuHolder(namespace, owner, sum(amounts), min(created), tuple(sorted(set(names)))))
    return tuple(sorted(found, key=lambda holder: (-holder.gpus, holder.namespace, holder.owner)))


def _owner(evidence: Evidence, item: ClusterObject) -> str:
    """The topmost known owner, as `Kind/name`."""
    owner = item
    for _ in range(8):
        above = evidence.owner(owner) if owner.owners else None
        if above is None:
            break
        owner = above
    if owner.owners:
        kind, name, _ = owner.owners[0]
        return f"{kind}/{name}"
    return f"{owner.kind}/{owner.name}"
