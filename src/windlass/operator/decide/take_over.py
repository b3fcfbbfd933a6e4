"""Takes parts of a node over from NVIDIA's operator, and gives them back: node by node within the count, and never
while a change or a repair works on the stack.

Called by `decide.main` after bring-up. First the taint, since a pod that is bound while the device plugins change
places fails; when that has been read back, the labels with what they were; bring-up's plugin step then waits until the
other plugin has gone, or come, and the kubelet has noticed. Running pods keep their GPUs.
"""

from __future__ import annotations

import msgspec

from windlass.model.names.windlass import TAKEN_OVER_ANNOTATION, TAKEN_OVER_VALUE
from windlass.model.node import Taint
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.node.agent_parts import DEPLOY_LABELS
from windlass.operator.decide.owners import is_agent_pod, is_other_plugin_pod
from windlass.operator.decide.pool import Pool, takes_node
from windlass.operator.kinds.taken_over import TakenOver, encode_taken_over, original_labels, paused_label, taken_over
from windlass.operator.observed import NodeView

SETTLE_SECONDS = 60
"""After the labels were written: the kubelet reports the devices of a plugin that has gone for up to ten seconds, and
the agent looks at its labels every five."""
PLUGIN_LABEL = DEPLOY_LABELS["plugin"]


def why_handing_over(pool: Pool, name: str) -> str:
    """What a node whose labels were written waits for; empty if it waits for nothing."""
    node, record = pool.nodes[name], taken_over(pool.nodes[name].annotations)
    if record is None:
        return ""
    theirs = [pod for pod in pool.pods_on(name) if is_other_plugin_pod(pod)]
    value = node.labels.get(PLUGIN_LABEL, "")
    if value == TAKEN_OVER_VALUE and theirs:
        return f"{theirs[0].key} is still there"
    if not record.labels and value == "true" and not any(pod.is_ready for pod in theirs):
        return "gpu-operator's device plugin is not ready yet"
    settled = parse_timestamp(record.at) + SETTLE_SECONDS
    if pool.now < settled:
        pool.wake(settled)
        return f"until {format_timestamp(settled)}, when the kubelet has noticed the other device plugin"
    return ""


def hand_over(pool: Pool, name: str) -> None:
    """The next write of a node that has something that is to be taken or given back."""
    node, record = pool.nodes[name], taken_over(pool.nodes[name].annotations)
    taken, given = _to_take(pool, node), _to_give_back(pool, node, record)
    if not taken and not given:
        if record is not None and not record.labels and not why_handing_over(pool, name):
            pool.patch(name).annotations[TAKEN_OVER_ANNOTATION] = None
        return
    if paused_label(node.labels) or _is_disturbed(pool, name) or not pool.budget.take(name):
        return
    key = pool.stack.spec.not_ready_taint
    if not node.has_taint(key):
        pool.patch(name).taints[key] = Taint(key=key, effect="NoSchedule")
        return
    pool.patch(name).taints.pop(key, None)  # bring-up would open it: until now nothing is missing
    known = record.labels if record is not None else {}
    kept = {label: value for label, value in {**taken, **known}.items() if label not in given}
    pool.patch(name).labels.update(dict.fromkeys(taken, TAKEN_OVER_VALUE) | given)
    written = TakenOver(pool.stack.name, format_timestamp(pool.now), kept)
    pool.patch(name).annotations[TAKEN_OVER_ANNOTATION] = encode_taken_over(written)


def _to_take(pool: Pool, node: NodeView) -> dict[str, str | None]:
    """Labels of parts that NVIDIA's operator runs here and the stack wants, as they are."""
    if not any(is_agent_pod(pod) for pod in pool.pods_on(node.name)):
        return {}  # nobody would do it
    labels = (DEPLOY_LABELS[step] for step in pool.stack.spec.take_over)
    return {label: "true" for label in labels if node.labels.get(label) == "true"}


def _to_give_back(pool: Pool, node: NodeView, record: TakenOver | None) -> dict[str, str | None]:
    if record is None:
        return {}
    wanted = {DEPLOY_LABELS[step] for step in pool.stack.spec.take_over}
    unwanted = msgspec.structs.replace(record, labels={k: v for k, v in record.labels.items() if k not in wanted})
    return original_labels(unwanted, node.labels)


def _is_disturbed(pool: Pool, name: str) -> bool:
    """Whether a change of the stack is unfinished, or the node is being changed or repaired: one thing at a time."""
    record = pool.statuses[name].change
    return (
        any(change.is_unfinished for change in pool.changes)
        or (record is not None and not record.result)
        or any(repair.spec.node == name and takes_node(repair) for repair in pool.repairs)
    )
