"""A Job's podFailurePolicy: what a failed pod means for the Job. Asked by `controllers.job`."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.controllers.objects import key_of
from windlass.embedded.controllers.pod_state import phase_of
from windlass.model.unstructured import Unstructured

COUNT, IGNORE, FAIL_JOB, FAIL_INDEX = "Count", "Ignore", "FailJob", "FailIndex"


def failure_policy_action(job: Unstructured, pod: Unstructured) -> tuple[str, str]:
    """`(action, message)` of the first rule that matches; Count where there is none."""
    policy = job["spec"].get("podFailurePolicy")
    if not policy or phase_of(pod) != "Failed":
        return COUNT, ""
    for number, rule in enumerate(policy.get("rules") or ()):
        why = _matches(rule, pod)
        if why:
            action = str(rule["action"])
            return action, f"{why} matching {action} rule at index {number}"
    return COUNT, ""


def _matches(rule: Unstructured, pod: Unstructured) -> str:
    """In words, or "" where the rule doesn't match."""
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
    for each in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        ended = (each.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode") and (not only or each["name"] == only):
            yield each["name"], int(ended["exitCode"])
