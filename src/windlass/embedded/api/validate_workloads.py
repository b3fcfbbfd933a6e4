"""Validation of Deployments, ReplicaSets, DaemonSets, StatefulSets, Jobs, CronJobs and PodDisruptionBudgets.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from windlass.embedded.api.errors import FieldError, forbidden_field, invalid, required, unsupported
from windlass.embedded.api.field_checks import (
    choice_errors,
    minimum_errors,
    optional_choice_errors,
    problem_errors,
)
from windlass.embedded.api.names import dns_label_problems
from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.api.validate_job_policies import failure_policy_errors, success_policy_errors
from windlass.embedded.api.validate_metadata import annotation_errors, label_errors, selector_errors
from windlass.embedded.api.validate_pod import pod_spec_errors
from windlass.embedded.api.validate_volumes import claim_spec_errors
from windlass.model.names.kubernetes import JOB_CONTROLLER_UID_LABEL
from windlass.model.unstructured import Unstructured

PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_MISMATCH = "`selector` does not match template `labels`"


def template_errors(template: Unstructured, path: str) -> Iterator[FieldError]:
    """Validates a pod template."""
    metadata = template.get("metadata") or {}
    yield from label_errors(metadata.get("labels") or {}, f"{path}.labels")
    yield from annotation_errors(metadata.get("annotations") or {}, f"{path}.annotations")
    yield from pod_spec_errors(template["spec"], f"{path}.spec")


def _labels(spec: Unstructured) -> Any:
    return (spec["template"].get("metadata") or {}).get("labels")


def _selector_errors(spec: Unstructured, if_empty: str, is_required: bool = True) -> Iterator[FieldError]:
    """The selector itself."""
    selector = spec.get("selector")
    if selector is None:
        if is_required:
            yield required("spec.selector")
        return
    errors = list(selector_errors(selector, "spec.selector"))
    yield from errors
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, if_empty)
    elif errors:
        yield invalid("spec.selector", selector, "invalid label selector")


def _template_label_errors(spec: Unstructured) -> Iterator[FieldError]:
    selector, labels = spec.get("selector"), _labels(spec)
    if selector is not None and list(selector_errors(selector, "")):
        return
    if not matches_selector(selector, labels or {}):
        yield invalid("spec.template.metadata.labels", labels, _MISMATCH)


def _long_running_errors(spec: Unstructured) -> Iterator[FieldError]:
    """Pods that are kept running must always restart and have no deadline."""
    yield from _template_label_errors(spec)
    yield from template_errors(spec["template"], "spec.template")
    pod_spec = spec["template"]["spec"]
    if pod_spec.get("restartPolicy") in ("Never", "OnFailure"):
        yield unsupported("spec.template.spec.restartPolicy", pod_spec["restartPolicy"], ("Always",))
    if pod_spec.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield forbidden_field("spec.template.spec.activeDeadlineSeconds", detail)


def deployment_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from minimum_errors(spec, "replicas", "spec")
    yield from _selector_errors(spec, "empty selector is invalid for deployment")
    yield from _long_running_errors(spec)
    yield from _strategy_errors(spec["strategy"])
    yield from minimum_errors(spec, "minReadySeconds", "spec")
    yield from minimum_errors(spec, "revisionHistoryLimit", "spec")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        yield from minimum_errors(spec, "progressDeadlineSeconds", "spec")
        if deadline <= spec.get("minReadySeconds", 0):
            yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _strategy_errors(strategy: Unstructured) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field("spec.strategy.rollingUpdate", detail)
    elif kind == "RollingUpdate":
        rolling = rolling or {}
        yield from _rolling_errors(rolling, "spec.strategy.rollingUpdate")
        if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
            detail = "may not be 0 when `maxSurge` is 0"
            yield invalid("spec.strategy.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], detail)
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield unsupported("spec.strategy", shown, ("Recreate", "RollingUpdate"))


def _rolling_errors(rolling: Unstructured, path: str) -> Iterator[FieldError]:
    for name in ("maxUnavailable", "maxSurge"):
        yield from int_or_percent_errors(rolling.get(name), f"{path}.{name}")


def int_or_percent_errors(value: Any, path: str, max_percent: int | None = None) -> Iterator[FieldError]:
    """A number of pods, or a percentage of them."""
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9]{1,18}%", value):
            yield invalid(path, value, PERCENT_MESSAGE)
        elif max_percent is not None and int(value[:-1]) > max_percent:
            yield invalid(path, value, f"must not be greater than {max_percent}%")
    elif value is not None and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def replication_controller_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from minimum_errors(spec, "minReadySeconds", "spec")
    if not spec.get("selector"):
        yield required("spec.selector")
    yield from minimum_errors(spec, "replicas", "spec")
    if not spec.get("template"):
        yield required("spec.template")
        return
    labels = _labels(spec) or {}
    if any(labels.get(key) != value for key, value in (spec.get("selector") or {}).items()):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from template_errors(spec["template"], "spec.template")


def replica_set_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from minimum_errors(spec, "replicas", "spec")
    yield from minimum_errors(spec, "minReadySeconds", "spec")
    yield from _selector_errors(spec, "empty selector is invalid for deployment")
    yield from _long_running_errors(spec)


def daemon_set_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from _selector_errors(spec, "empty selector is invalid for daemonset", is_required=False)
    yield from _long_running_errors(spec)
    yield from minimum_errors(spec, "minReadySeconds", "spec")
    strategy = spec["updateStrategy"]
    if strategy.get("type") == "RollingUpdate":
        yield from _rolling_errors(strategy.get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate")
    elif strategy.get("type") != "OnDelete":
        shown = {"Type": strategy.get("type"), "RollingUpdate": strategy.get("rollingUpdate")}
        yield unsupported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete"))
    yield from minimum_errors(spec, "revisionHistoryLimit", "spec")


def stateful_set_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    management = spec.get("podManagementPolicy", "")
    if management not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", management, "must be 'OrderedReady' or 'Parallel'")
    strategy = spec["updateStrategy"]
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type"), "RollingUpdate": strategy.get("rollingUpdate")}
        yield invalid("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'")
    yield from _claims_errors(spec)
    yield from minimum_errors(spec, "replicas", "spec")
    yield from minimum_errors(spec, "minReadySeconds", "spec")
    yield from minimum_errors(spec.get("ordinals") or {}, "start", "spec.ordinals")
    if spec.get("serviceName"):
        yield from problem_errors("spec.serviceName", spec["serviceName"], dns_label_problems)
    yield from _selector_errors(spec, "empty selector is invalid for statefulset")
    yield from _long_running_errors(_with_claims(spec))


def _with_claims(spec: Unstructured) -> Unstructured:
    """The spec with the volumes of its claim templates, so that containers may mount them."""
    names = [(item.get("metadata") or {}).get("name", "") for item in spec.get("volumeClaimTemplates") or ()]
    pod_spec = spec["template"]["spec"]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    others = [item for item in pod_spec.get("volumes") or () if item.get("name") not in names]
    return {**spec, "template": {**spec["template"], "spec": {**pod_spec, "volumes": [*claims, *others]}}}


def _claims_errors(spec: Unstructured) -> Iterator[FieldError]:
    policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        yield from choice_errors(policy, name, "spec.persistentVolumeClaimRetentionPolicy", ("Retain", "Delete"))
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from claim_spec_errors(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec")


# ---- jobs

_JOB_NUMBERS = (
    *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
    *("backoffLimitPerIndex", "maxFailedIndexes"),
)


def job_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from _generated_selector_errors(obj)
    yield from _job_field_errors(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    else:
        yield from selector_errors(selector, "spec.selector")
    if not matches_selector(selector, _labels(spec) or {}):
        yield invalid("spec.template.metadata.labels", _labels(spec), _MISMATCH)
    yield from _job_template_errors(spec, "spec.template")


def _generated_selector_errors(obj: Unstructured) -> Iterator[FieldError]:
    """The server generates the selector, unless `manualSelector` is set."""
    spec = obj["spec"]
    if spec.get("manualSelector"):
        return
    wanted = {"matchLabels": {JOB_CONTROLLER_UID_LABEL: obj["metadata"].get("uid", "")}}
    old = {"matchLabels": {"controller-uid": obj["metadata"].get("uid", "")}}
    if spec.get("selector") not in (wanted, old):
        yield invalid("spec.selector", spec.get("selector"), "`selector` not auto-generated")


def _job_field_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    for name in _JOB_NUMBERS:
        yield from minimum_errors(spec, name, path)
    mode = spec.get("completionMode")
    yield from optional_choice_errors(spec, "completionMode", path, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if mode != "Indexed":
        if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
            yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    yield from failure_policy_errors(spec, path)
    yield from success_policy_errors(spec, path)
    yield from optional_choice_errors(spec, "podReplacementPolicy", path, ("Failed", "TerminatingOrFailed"))


def _job_template_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    yield from template_errors(spec["template"], path)
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy in (None, "", "Always"):
        yield required(f"{path}.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif spec.get("podFailurePolicy") and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid(f"{path}.spec.restartPolicy", policy, detail)


_CONCURRENCY = ("Allow", "Forbid", "Replace")


def cron_job_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    schedule = spec.get("schedule", "")
    if not schedule:
        yield required("spec.schedule")
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        fields = schedule.split()
        detail = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        yield invalid("spec.schedule", schedule, detail)
    yield from choice_errors(spec, "concurrencyPolicy", "spec", _CONCURRENCY)
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from minimum_errors(spec, name, "spec")
    job_spec = spec["jobTemplate"]["spec"]
    yield from _job_field_errors(job_spec, "spec.jobTemplate.spec")
    yield from _job_template_errors(job_spec, "spec.jobTemplate.spec.template")


def controller_revision_errors(obj: Unstructured) -> Iterator[FieldError]:
    if obj.get("data") is None:
        yield required("data", "data is mandatory")
    elif not isinstance(obj["data"], dict):
        yield required("data", "data must be a valid JSON object")
    if obj.get("revision", 0) < 0:
        yield invalid("revision", obj["revision"], "must be greater than or equal to 0")


def budget_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
        shown = {name[0].upper() + name[1:]: spec.get(name) for name in names}
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        yield from int_or_percent_errors(spec.get(name), f"spec.{name}", 100)
    policies = ("AlwaysAllow", "IfHealthyBudget")
    yield from optional_choice_errors(spec, "unhealthyPodEvictionPolicy", "spec", policies)
    yield from selector_errors(spec.get("selector"), "spec.selector")
