"""Why a workload that others depend on does not work: a DaemonSet of the GPU stack, a webhook, a reservation pod.

`gpu_stack` asks it about components of a node, `resource_claims` about drivers, `refusal` about objects that a message
names. Its pods may be refused, unplaceable, without an image, killed or failing, as those of any other workload.
"""

from __future__ import annotations

import difflib
import re

import msgspec

from windlass.diagnose import log_patterns, nodes
from windlass.diagnose.contradictions import current_logs, is_ready
from windlass.diagnose.evidence import ClusterObject, Evidence, LogLines
from windlass.diagnose.explanations import ADMINISTRATORS
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import LONG_LINE, PatternMatch, match_finding
from windlass.diagnose.nodes import is_gpu_name, looks_like_gpu_node
from windlass.diagnose.pod_status import is_failing, memory_findings, pull_findings
from windlass.diagnose.reports import COMPLAINS, Report, event_reports, status_reports
from windlass.diagnose.scheduler_condition import codes_of_message
from windlass.diagnose.stack_components import FAILURE_CODES, component_of, container_failure
from windlass.diagnose.subject import Subject, is_waiting, node_of, owners_of, template_pods
from windlass.diagnose.unstructured import find_condition, nested, nested_int, nested_map, nested_maps, nested_string
from windlass.model.names.nvidia import DEPLOY_LABEL_PREFIX
from windlass.model.node import Node
from windlass.model.taints import is_lifecycle_taint

OWNERS = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet")
SERVICE = re.compile(r"(?<![\w.-])([a-z0-9][\w-]*)\.([a-z0-9][\w-]*)\.svc\b|service \"?([\w-]+)\"?")


def workload_fault(evidence: Evidence, owner: ClusterObject, now: int, node: str = "") -> Finding | None:
    """Why it has no working pod (on the node); None if nothing says why, or if it works."""
    family = [owner, *(child for child in evidence.children(owner) if child.kind in OWNERS)]
    pods = [pod for item in family for pod in evidence.children(item) if pod.kind == "Pod"]
    placed = [pod for pod in pods if not node or (node_of(pod) or _target_node(pod)) in (node, "")]
    if any(is_ready(pod) for pod in placed):
        return None
    for pod in placed:
        found = pod_fault(evidence, pod, now)
        if found is not None:
            return found
    return None if placed else creation_refusal(evidence, family)


def excluded_plugin(evidence: Evidence, owner: ClusterObject) -> Finding | None:
    """A plugin's DaemonSet without pods, whose selector or a taint excludes every node; GPU nodes are named first."""
    shown = sorted(evidence.nodes.values(), key=lambda node: not looks_like_gpu_node(node))[:MANY_NODES]
    found = [exclusion_finding(owner, node) for node in shown] if not evidence.children(owner) else []
    if not found or found[0] is None or not all(found):
        return None
    return msgspec.structs.replace(found[0], code="DEVICE_PLUGIN_ABSENT", contributing=(found[0].code,))


MANY_NODES = 200


def role_fault(
    evidence: Evidence, owner: ClusterObject, role: str, now: int, node: str = "", explains: tuple[str, ...] = ()
) -> Finding | None:
    """Why a workload has no working pod (on the node); `role` says what depends on it."""
    fault = workload_fault(evidence, owner, now, node)
    if fault is None:
        return None
    message = f"{owner.title}, {role}, has no working pod: {fault.message}"
    return msgspec.structs.replace(fault, headline=message, explains=explains)


def daemonset_exclusion(daemon: ClusterObject, node: Node) -> str:
    """Why a DaemonSet has no pod on the node; empty if it should have one."""
    pods, _ = template_pods(daemon)
    if not pods:
        return ""
    pod = pods[0]
    misses = nodes.selector_mismatches(node, pod)
    if misses and misses[0].startswith(DEPLOY_LABEL_PREFIX) and node.labels.get(OPERANDS_LABEL) == "false":
        return f"label {misses[0]}: the node is labelled {OPERANDS_LABEL}=false, so the operator deploys nothing there"
    if misses:
        return f"label {misses[0]}"
    taints = [taint for taint in nodes.blocking_taints(node, pod) if not is_lifecycle_taint(taint.key)]
    return f"taint {nodes.format_taint(taints[0])} is not tolerated" if taints else ""


def exclusion_finding(daemon: ClusterObject, node: Node) -> Finding | None:
    """That a DaemonSet has no pod on the node, with the label or the taint that keeps it off; None if it should."""
    why = daemonset_exclusion(daemon, node)
    if not why:
        return None
    code = "SELECTOR_MISMATCH" if why.startswith("label") else "TAINT_NOT_TOLERATED"
    key = why.removeprefix("label ").partition(" is ")[0]
    alike = difflib.get_close_matches(key, [label for label in node.labels if label != key], 1, ALIKE)
    hint = f" (the node has {alike[0]}={node.labels[alike[0]]})" if alike and code == "SELECTOR_MISMATCH" else ""
    remedy = f"let {daemon.title} run on the node (its tolerations and node selector)"
    return Finding(code, f"{daemon.title} has no pod on node {node.name}: {why}{hint}", remedy=remedy)


OPERANDS_LABEL = f"{DEPLOY_LABEL_PREFIX}operands"
ALIKE = 0.75
"""How similar two names of labels are that probably mean the same."""


def _target_node(pod: ClusterObject) -> str:
    """The node that a DaemonSet's pod is made for; empty for other pods."""
    required = nested(pod.data, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return nested_string(required, "nodeSelectorTerms", 0, "matchFields", 0, "values", 0)


def creation_refusal(evidence: Evidence, owners: list[ClusterObject]) -> Finding | None:
    """The API server's refusal of the pods of a workload."""
    for owner in owners:
        for report in (*event_reports(evidence, owner), *status_reports(owner)):
            found = classified(report)
            if found is not None:
                return found
    return None


def classified(report: Report) -> Finding | None:
    """What a controller's message shows; None if it shows no cause that is known."""
    for seen in log_patterns.find_matches([LogLines(report.speaker, [report.text])], log_patterns.API):
        remedy = next((remedy for words, remedy in REMEDIES if words.search(seen.line)), seen.remedy)
        return Finding(seen.code, _essence(seen), (report.quote,), remedy=remedy)
    return None


REMEDIES = (
    (
        re.compile(r"failed (calling|to call) webhook", re.I),
        "repair what serves the webhook; until it answers, nothing of that kind can be created",
    ),
    (
        re.compile(r"violates PodSecurity", re.I),
        "change what the message names in the pod's template, or, if it has to be so, have the namespace labelled "
        "pod-security.kubernetes.io/enforce=privileged",
    ),
    (
        re.compile(r"error looking up|no PriorityClass|RuntimeClass \S+ not found", re.I),
        "create what the message names, or correct the name",
    ),
    (
        re.compile(r"(max|min)imum \S+ usage per (Container|Pod|PersistentVolumeClaim) is"),
        "ask for what the namespace's LimitRange allows, or have it changed (kubectl get limitrange -o yaml)",
    ),
    (
        re.compile(r"max limit to request ratio per"),
        "raise the request, or lower the limit, or have the namespace's LimitRange changed (kubectl get limitrange "
        "-o yaml)",
    ),
    (
        re.compile(r"must be less than or equal to (cpu|memory|ephemeral-storage) limit"),
        "state a limit of at least the request: where the template has none, a LimitRange of the namespace sets it "
        "(kubectl get limitrange -o yaml)",
    ),
    (
        re.compile(r"priority admission controller computed", re.I),
        "take the field out of the pod's template, or name a PriorityClass that has this value",
    ),
    (re.compile(r"is being terminated", re.I), "wait until the namespace is gone, and create it and its objects again"),
)
"""Words of a refusal → what to do about it, where that is not what the code says."""


def _essence(match: PatternMatch) -> str:
    """The message from the words on that say what is wrong; empty if it has none of them."""
    found = ESSENCE.search(match.line)
    return match.line[found.start() :].strip()[:LONG_LINE] if found else ""


ESSENCE = re.compile(
    r"exceeded quota:|RuntimeClass \S+ not found"
    r"|insufficient quota|admission webhook|violates Pod|failed calling webhook|queue \w+ quota"
    r"|error looking up|no PriorityClass|(max|min)imum \S+ usage per|the \w+ value of (priority|Preemption)"
    r"|\S+ max limit to request ratio per|spec\.[\w.\[\]]+: (Invalid|Required|Forbidden|Unsupported|Duplicate)"
    r"|unable to create new content|(\w+ )?\S+ is not (permitted|allowed) (in|by)",
    re.I,
)


def pod_fault(evidence: Evidence, pod: ClusterObject, now: int) -> Finding | None:
    """Why a pod that others depend on does not work, in its own and its kubelet's words."""
    if is_ready(pod):
        return None
    if is_waiting(pod):
        message = nested_string(find_condition(pod.data, "PodScheduled"), "message")
        codes = codes_of_message(message)
        if target := _target_node(pod):  # that it selects by name excludes all nodes but its own
            codes = [code for code in codes if code != "SELECTOR_MISMATCH"]
        where = f"{pod.title} finds no room on node {target}" if target else f"{pod.title} finds no node"
        return Finding(codes[0], f"{where}: {message}") if len(codes) == 1 else None
    failures = [*pull_findings(evidence, pod, now), *memory_findings(pod)]
    if failures:
        found = failures[0]
        return Finding(found.code, f"{pod.title} does not work: {found.message}", found.evidence, found.contributing)
    if not is_failing(pod):
        return None
    logs = current_logs(evidence, pod)
    for source in (log_patterns.STACK, log_patterns.CONTAINER):
        for seen in log_patterns.find_matches(logs, source):
            found = match_finding(seen)
            return Finding(found.code, f"{pod.title} fails: {found.message}", found.evidence)
    return None


def discovery_faults(evidence: Evidence, now: int, node: str = "") -> list[Finding]:
    """Why what makes a node a GPU node for others does not work: discovery labels it, the operator acts on labels.

    Where their pods are refused, unplaceable or failing, nothing that they would make is there: labels, DaemonSets,
    devices.
    """
    for component in DISCOVERY:
        for owner in (item for kind in OWNERS[:3] for item in evidence.of_kind(kind)):
            if component_of(owner) != component:
                continue
            role, where = "on which labels and devices of GPU nodes depend", node if owner.kind == "DaemonSet" else ""
            fault = role_fault(evidence, owner, role, now, where, MADE_BY_DISCOVERY)
            if fault is not None and fault.code not in FAILURE_CODES.values():
                return [fault]
    return []


MADE_BY_DISCOVERY = ("GFD_LABELS_MISSING", "DEVICE_PLUGIN_ABSENT", "DRIVER_MISSING")


def unworking_discovery(evidence: Evidence) -> ClusterObject | None:
    """A workload of discovery or of the operator that wants pods and has no ready one, for whatever reason."""
    for owner in (item for kind in OWNERS[:3] for item in evidence.of_kind(kind)):
        status = nested_map(owner.data, "status")
        wanted = nested_int(status, "desiredNumberScheduled") or nested_int(owner.data, "spec", "replicas")
        ready = nested_int(status, "numberReady") or nested_int(status, "readyReplicas")
        if wanted and not ready and component_of(owner) in DISCOVERY:
            return owner
    return None


DISCOVERY = ("node feature discovery", "operator", "feature discovery")
"""Components on which labels, DaemonSets and devices of GPU nodes depend, the first of the chain first."""


def plugin_faults(evidence: Evidence, resource: str, now: int) -> list[Finding]:
    """Why the plugin of a resource that no node advertises does not work: a DaemonSet of its vendor, or that names it.

    GPU nodes are examined layer by layer (`gpu_stack`); of other devices (RDMA, FPGAs) nothing more is known.
    """
    vendor, _, name = resource.partition("/")
    if is_gpu_name(resource) and "gpu" in name:
        return []
    for owner in evidence.of_kind("DaemonSet"):
        said = _statements(evidence, owner, resource, name)
        if vendor.split(".")[0] not in owner.name and not said:
            continue
        role, explains = f"which should advertise {resource}", ("RESOURCE_NAME_MISMATCH",)
        fault, crash = role_fault(evidence, owner, role, now, "", explains), _crash(evidence, owner, role)
        fault = fault or excluded_plugin(evidence, owner)
        if fault is None and crash is not None:
            fault = msgspec.structs.replace(crash, code="DEVICE_PLUGIN_FAILING", explains=explains)
        if fault is None and said:  # that it runs is no evidence that it has found a device
            fault = _advertises_none(owner, resource, said)
        if fault is not None:
            return [fault]
    return []


def _statements(evidence: Evidence, owner: ClusterObject, resource: str, name: str) -> list[str]:
    """What its pods' logs say about the resource, complaints last, or the ConfigMap beside it that names it."""
    named = re.compile(
        rf"(?<![\w.-])({re.escape(resource)}|{re.escape(name)})(?![\w.-])" if len(name) > 5 else resource
    )
    logs = [log for pod in evidence.children(owner) for log in evidence.logs_of(pod)]
    lines = [f"{log.origin}: {line.strip()[:LONG_LINE]}" for log in logs for line in log.lines if named.search(line)]
    configs = [item for item in evidence.of_kind("ConfigMap") if item.namespace == owner.namespace]
    texts = [
        item.title for item in configs if any(named.search(str(text)) for text in item.data.get("data", {}).values())
    ]
    mounted = str(nested_map(owner.data, "spec", "template", "spec").get("volumes"))
    configured = [f"{title} names it" for title in texts if title.rpartition("/")[2] in mounted]
    return [*configured, *sorted(lines, key=lambda line: bool(NOTHING_FOUND.search(line)))]


NOTHING_FOUND = re.compile(rf"{COMPLAINS.pattern}|warn|\bno \w|empty|\b0 devices|skip", re.I)
"""Words of a plugin that has found none of the devices that it should advertise, or that fails."""


def _advertises_none(owner: ClusterObject, resource: str, said: list[str]) -> Finding:
    message = f"{owner.title} runs and should advertise {resource}, but no node has any of it"
    remedy = "compare the selectors of the plugin's configuration with the devices of the nodes, and see its log"
    unsaid = MissingEvidence("the plugin's log", f"kubectl logs -n {owner.namespace} daemonset/{owner.name}")
    missing = () if NOTHING_FOUND.search(said[-1]) else (unsaid,)
    explains = ("RESOURCE_NAME_MISMATCH",)
    return Finding("DEVICE_PLUGIN_FAILING", message, tuple(said[-1:]), (), remedy, missing, explains)


# Controllers of custom objects

CONTROLLERS = {
    "kubeflow.org": r"training-operator|trainer|mpi-operator|pytorch",
    "trainer.kubeflow.org": r"trainer",
    "ray.io": r"ray.*operator|operator.*ray",
    "leaderworkerset.x-k8s.io": r"^lws|leaderworkerset",
    "jobset.x-k8s.io": r"jobset",
    "batch.volcano.sh": r"volcano.*controller",
    "sparkoperator.k8s.io": r"spark.*(operator|controller)",
    "workload.codeflare.dev": r"appwrapper|codeflare",
    "serving.kserve.io": r"kserve|inference",
}
"""API group → names of the Deployments that make the pods of its objects."""


def controllers_of(evidence: Evidence, item: ClusterObject) -> list[ClusterObject]:
    """Deployments outside of its namespace, which is a tenant's, that make the pods of such objects."""
    named = re.compile(CONTROLLERS.get(item.api_group, r"$^"))
    owners = (owner for kind in ("Deployment", "StatefulSet") for owner in evidence.of_kind(kind))
    return [owner for owner in owners if named.search(owner.name) and owner.namespace != item.namespace]


def controller_fault(evidence: Evidence, item: ClusterObject, now: int) -> Finding | None:
    """Why nothing makes its pods: every controller of its kind is without a ready pod; None if one has one."""
    owners = controllers_of(evidence, item)
    if any(nested_int(owner.data, "status", "readyReplicas") for owner in owners):
        return None
    role = f"which makes the pods of every {item.kind}"
    found = [role_fault(evidence, owner, role, now) or _crash(evidence, owner, role) for owner in owners]
    fault = next(filter(None, found), None)
    return msgspec.structs.replace(fault, changed_by=ADMINISTRATORS) if fault is not None else None


def named_scheduler(owner: ClusterObject) -> str:
    """The scheduler that a controller is told to use, by an argument of its container; empty if by none."""
    for container in nested_maps(owner.data, "spec", "template", "spec", "containers"):
        words = [str(word) for field in ("command", "args") for word in nested(container, field) or []]
        if found := SCHEDULER_OPTION.search(" ".join(words)):
            return found[1]
    return ""


SCHEDULER_OPTION = re.compile(r"--(?:gang|batch)-schedul\w+(?:-name)?[= ]([a-z][\w.-]*)")


# Objects that a message names


def named_fault(evidence: Evidence, subject: Subject, report: Report, now: int) -> Finding | None:
    """The fault of another object that the message about the subject names: what it waits for, or calls."""
    family = {id(item) for item in (*subject.related, *subject.pods)}
    words = set(re.findall(r"[a-z0-9][a-z0-9.-]{5,}[a-z0-9]", report.text))
    for pod in evidence.of_kind("Pod"):
        if pod.name in words and id(pod) not in family:
            found = pod_fault(evidence, pod, now)
            if found is not None:
                return found
    for name, namespace, bare in SERVICE.findall(report.text):
        # A namespace that serves a webhook has few workloads: where the Service is not known, any of them may be it.
        for owner in _behind_service(evidence, name or bare, namespace) or _down_in(evidence, namespace):
            found = workload_fault(evidence, owner, now)
            if found is not None:
                return found
    return None


def _behind_service(evidence: Evidence, service: str, namespace: str) -> list[ClusterObject]:
    """Workloads without a ready pod that serve it: those that it selects, or that have its name."""
    known = [item for item in evidence.of_kind("Service") if item.name == service]
    where = namespace or (known[0].namespace if len(known) == 1 else "")
    return [item for item in _down_in(evidence, where) if _serves(item, service, known)]


def _down_in(evidence: Evidence, namespace: str) -> list[ClusterObject]:
    """Workloads of the namespace without a ready pod."""
    owners = (item for kind in ("Deployment", "StatefulSet") for item in evidence.of_kind(kind))
    here = [item for item in owners if item.namespace == namespace]
    return [item for item in here if not nested_int(item.data, "status", "readyReplicas")]


def _serves(item: ClusterObject, service: str, known: list[ClusterObject]) -> bool:
    labels = nested_map(item.data, "spec", "template", "metadata", "labels")
    selectors = [nested_map(found.data, "spec", "selector") for found in known if found.namespace == item.namespace]
    return item.name == service or any(selector and selector.items() <= labels.items() for selector in selectors)


# What a program depends on


def dependency_fault(evidence: Evidence, pod: ClusterObject, now: int, waits_in: str = "") -> Finding | None:
    """The failing workload behind the service, or the name resolution, that the pod's last complaints are about.

    An init container that waits (`waits_in`) does not complain: all that it says counts.
    """
    for log in current_logs(evidence, pod):
        is_waiting_log = bool(waits_in) and log.origin.endswith(f"({waits_in})")
        for line in [line for line in log.lines if is_waiting_log or COMPLAINS.search(line)][-MANY_COMPLAINTS:]:
            for owner in _dependencies(evidence, pod, line):
                fault = workload_fault(evidence, owner, now) or _crash(evidence, owner)
                if fault is not None and owner not in owners_of(evidence, pod):
                    message = f"it depends on {owner.title}, which does not work: {fault.message}"
                    quote = f"{log.origin}: {line.strip()[:LONG_LINE]}"
                    return msgspec.structs.replace(fault, headline=message, evidence=(quote, *fault.evidence))
    return None


def _dependencies(evidence: Evidence, pod: ClusterObject, line: str) -> list[ClusterObject]:
    """Workloads without a ready pod that the line is about."""
    if RESOLUTION.search(line):
        return [item for item in _down_in(evidence, "kube-system") if DNS.search(item.name)]
    found = []
    for name, namespace, _ in SERVICE.findall(line):
        found += _behind_service(evidence, name, namespace) if name else []
    hosts = set(HOST_AND_PORT.findall(line))
    for service in evidence.of_kind("Service"):
        if service.namespace == pod.namespace and service.name in hosts:
            found += _behind_service(evidence, service.name, service.namespace)
    return found


def _crash(evidence: Evidence, owner: ClusterObject, role: str = "") -> Finding | None:
    """A pod of it that fails for a reason that is not known; `role` says what depends on it."""
    family = [owner, *(child for child in evidence.children(owner) if child.kind in OWNERS)]
    for pod in (child for item in family for child in evidence.children(item) if child.kind == "Pod"):
        if failure := container_failure(pod):
            missing = MissingEvidence("its log", f"kubectl logs -n {pod.namespace} {pod.name} --all-containers")
            who = f"{owner.title}, {role}, has no working pod: " if role else ""
            return Finding("APP_ERROR", f"{who}{pod.title}: {failure}", missing=(missing,))
    return None


MANY_COMPLAINTS = 20
RESOLUTION = re.compile(r"name resolution|getaddrinfo|name or service not known|no such host|failed to resolve", re.I)
DNS = re.compile(r"coredns|kube-dns")
HOST_AND_PORT = re.compile(r"(?<![\w.-])([a-z][\w-]*):\d{2,5}\b")
