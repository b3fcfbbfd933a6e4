"""Binds that the API server itself refuses, for as long as a test wants: by an admission policy over `pods/binding`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.live.scenes import PODS, pod
from tests.real_cluster.api import Api, ApiError, until

VERSION = "admissionregistration.k8s.io/v1"
NAME = "no-binds"
PROBE = "probe-of-binds"
"""A pod that nobody schedules, by which the policy is seen to be in force."""


def refuse_binds(api: Api, names: Sequence[str]) -> None:
    """From now on these pods can't be bound; returns when that is so."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    allowed = f"!(object.metadata.name in {json.dumps([*names, PROBE])})"
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": allowed}]}
    use = {"policyName": NAME, "validationActions": ["Deny"]}
    kind = "ValidatingAdmissionPolicy"
    api.create(
        {
            "apiVersion": VERSION,
            "kind": kind,
            "metadata": {"name": NAME},
            "spec": {**spec, "failurePolicy": "Fail"},
        },
        {"apiVersion": VERSION, "kind": f"{kind}Binding", "metadata": {"name": NAME}, "spec": use},
        pod(PROBE, 0, "nobody"),
    )
    until(lambda: not _can_bind(api, PROBE), 60, "the policy is in force")


def allow_binds(api: Api) -> None:
    """As before, if it was otherwise."""
    for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        if api.exists(f"/apis/{VERSION}/{plural}/{NAME}"):
            api.delete(f"/apis/{VERSION}/{plural}/{NAME}")
    if api.exists(f"{PODS}/{PROBE}"):
        api.delete(f"{PODS}/{PROBE}", gracePeriodSeconds=0)


def _can_bind(api: Api, name: str) -> bool:
    """Asked with dry-run."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "any"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    try:
        api.post(f"{PODS}/{name}/binding?dryRun=All", body)
    except ApiError as error:
        if error.code != 422:
            raise
        return False
    return True
