"""A Job's podFailurePolicy: what a failed pod means for the Job. Used by `job` and `job_indices`."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.controllers.objects import key_of
from windlass.embedded.controllers.pod_state import phase_of
from windlass.model.unstructured import Unstructured

COUNT, IGNORE, FAIL_JOB, FAIL_INDEX = "Count", "Ignore", "FailJob", "FailIndex"


def failure_policy_action(job: Unstructured, pod: Unstructured) -> tuple[str, str]:
    """`(action, message)` of the first matching rule; Count without one."""
    policy = job["spec"].get("podFailurePolicy")
    if not policy or phase_of(pod) != "Failed":
        return COUNT, ""
    for number, rule in enumerate(policy.get("rules") or ()):
        match = _match_rule(rule, pod)
        if match:
            action = str(rule["action"])
            return action, f"{match} matching {action} rule at index {number}"
    return COUNT, ""


def _match_rule(rule: Unstructured, pod: Unstructured) -> str:
    """What matched; "" if the rule does not match."""
    codes = rule.get("onExitCodes")
    if codes:
        wanted = set(codes.get("values") or ())
        for name, code in _exit_codes(pod, codes.get("containerName") or ""):
            if (code in wanted) == (codes.get("operator") == "In"):
                return f"Container {name} for pod {key_of(pod)} failed with exit code {code}"
    conditions = (pod.get("status") or {}).get("conditions") or ()
    for pattern in rule.get("onPodConditions") or ():
        for condition in conditions:
            if condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True"):
                return f"Pod {key_of(pod)} has condition {condition['type']}"
    return ""


def _exit_codes(pod: Unstructured, only: str) -> Iterator[tuple[str, int]]:
    status = pod.get("status") or {}
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        terminated = (container.get("state") or {}).get("terminated")
        if terminated and terminated.get("exitCode") and (not only or container["name"] == only):
            yield container["name"], int(terminated["exitCode"])
