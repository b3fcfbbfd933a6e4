"""Labels, node selectors and tolerations, one object at a time."""

from __future__ import annotations


def label_requirement_holds(key, operator, values, labels):
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or not _is_integer(labels[key]):
        return False
    if operator == "Gt":
        return int(labels[key]) > int(values[0])
    if operator == "Lt":
        return int(labels[key]) < int(values[0])
    raise AssertionError(operator)


def _is_integer(text):
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and -(2**63) <= int(text) < 2**63


def selector_matches(selector, labels):
    """None matches nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    expressions = selector.match_expressions
    return all(label_requirement_holds(e.key, e.operator, e.values, labels) for e in expressions)


def node_term_matches(term, node):
    if not term.match_expressions and not term.match_fields:
        return False
    for e in term.match_expressions:
        if not label_requirement_holds(e.key, e.operator, e.values, node.metadata.labels):
            return False
    for field in term.match_fields:
        assert field.key == "metadata.name"
        if not label_requirement_holds("name", field.operator, field.values, {"name": node.metadata.name}):
            return False
    return True


def node_selector_matches(selector, node):
    return any(node_term_matches(term, node) for term in selector.node_selector_terms)


def pod_accepts_node_labels(pod, node):
    """nodeSelector and required node affinity."""
    for key, value in pod.spec.node_selector.items():
        if node.metadata.labels.get(key) != value:
            return False
    affinity = pod.spec.affinity
    if affinity and affinity.node_affinity:
        required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
        if required is not None and not node_selector_matches(required, node):
            return False
    return True


LEAVING = {
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "karpenter.sh/disrupted",
    "cloud.google.com/impending-node-termination",
    "ToBeDeletedByClusterAutoscaler",
    "windlass.dev/leaving",
}
"""Taints of nodes that go: a toleration without a key does not count for them."""


def is_tolerated(taint, tolerations):
    for t in tolerations:
        if t.effect and t.effect != taint.effect:
            continue
        if t.key and t.key != taint.key:
            continue
        if not t.key and taint.key in LEAVING:
            continue
        if t.operator == "Exists":
            return True
        if t.operator in ("", "Equal") and t.value == taint.value:
            return True
        if t.operator in ("Lt", "Gt") and _is_integer(t.value) and _is_integer(taint.value):
            if t.operator == "Lt" and int(taint.value) < int(t.value):
                return True
            if t.operator == "Gt" and int(taint.value) > int(t.value):
                return True
    return False


def has_untolerated_hard_taint(pod, node):
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(taint, pod.spec.tolerations):
            return True
    return False
