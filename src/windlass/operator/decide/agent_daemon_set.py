"""The DaemonSet of one version of the node agent for a stack, made from the one that is installed.

It differs in its image's tag, and in the nodes that it runs on: those with the label `windlass.dev/agent-revision`,
which the installed one leaves out. A node whose label goes is the installed agent's again: that is the way back.
"""

from __future__ import annotations

import hashlib
from typing import Any

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_MANAGED_BY_LABEL, APP_NAME_LABEL, APPS_API_VERSION
from windlass.model.names.windlass import AGENT_REVISION_LABEL
from windlass.model.unstructured import Unstructured
from windlass.operator.decide.driver_daemon_set import STACK_LABEL
from windlass.operator.observed import AgentTemplate

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def agent_daemon_set_name(stack: str, version: str) -> str:
    digest = hashlib.sha256(f"{stack}/{version}".encode()).hexdigest()[:8]
    return f"windlass-agent-{stack[:38].rstrip('-')}-{digest}"


def leaves_out_revisions(template: AgentTemplate) -> bool:
    """Whether the installed agent stays away from nodes that have a version of their own."""
    terms = _terms(template.pod)
    return bool(terms) and all(
        any(_is_exclusion(expression) for expression in term.get("matchExpressions") or ()) for term in terms
    )


def agent_daemon_set(stack: str, version: str, template: AgentTemplate, namespace: str) -> Unstructured:
    labels = {**template.labels, STACK_LABEL: stack, AGENT_REVISION_LABEL: version}
    selected = {key: labels[key] for key in (APP_NAME_LABEL, APP_COMPONENT_LABEL, STACK_LABEL, AGENT_REVISION_LABEL)}
    metadata = {
        "name": agent_daemon_set_name(stack, version),
        "namespace": namespace,
        "labels": {**labels, APP_MANAGED_BY_LABEL: "windlass"},
    }
    spec = {
        "selector": {"matchLabels": selected},
        "updateStrategy": {"type": "OnDelete"},
        "template": {"metadata": {"labels": labels}, "spec": _pod(template.pod, version)},
    }
    return {"apiVersion": APPS_API_VERSION, "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _pod(pod: dict[str, Any], version: str) -> Unstructured:
    containers = [{**container, "image": retagged(container["image"], version)} for container in pod["containers"]]
    terms = [
        {**term, "matchExpressions": [e for e in term.get("matchExpressions") or () if not _is_exclusion(e)]}
        for term in _terms(pod)
    ]
    found = {**pod, "containers": containers}
    found["nodeSelector"] = {**(pod.get("nodeSelector") or {}), AGENT_REVISION_LABEL: version}
    kept = [term for term in terms if any(term.values())]
    found.pop("affinity", None)
    if kept:
        found["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": kept}}}
    return found


def retagged(image: str, version: str) -> str:
    """The same repository with another tag; a digest goes, since it names one version."""
    repository = image.partition("@")[0]
    head, slash, last = repository.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}:{version}"


def _terms(pod: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    return list((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())


def _is_exclusion(expression: dict[str, Any]) -> bool:
    return expression.get("key") == AGENT_REVISION_LABEL and expression.get("operator") == "DoesNotExist"
