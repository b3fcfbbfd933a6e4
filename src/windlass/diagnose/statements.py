"""What a statement is about, by its words alone, where no rule understands it.

`why` asks it where the answer would be UNKNOWN although somebody has said what is wrong. A statement counts if it
complains and all that it names is one thing. Such an answer is never sure: words are no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from windlass.diagnose.causes import CAUSES
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.log_patterns import API, CONTAINER, KUBELET, LONG_LINE, find_matches_in_text
from windlass.diagnose.pod_status import is_failing, uncreated
from windlass.diagnose.reports import COMPLAINS, Report, reports_about
from windlass.diagnose.scheduler_condition import COUNTED_NODES
from windlass.diagnose.subject import Subject

_Vocabulary = tuple[tuple[str, re.Pattern[str]], ...]


def _vocabulary(words: dict[str, str]) -> _Vocabulary:
    return tuple((code, re.compile(pattern, re.IGNORECASE)) for code, pattern in words.items())


DEVICES = _vocabulary(
    {
        "GPU_HW_FAULT": r"\bxid\b|\becc\b|nvrm|row remap|fallen off|gpu is lost|\bpcie\b",
        "FABRIC_NOT_READY": r"fabric|nvswitch|nvlink|\bimex\b|compute ?domain",
        "MIG_CONFIG_NOT_APPLIED": r"\bmig\b",
        "MPS_NOT_READY": r"\bmps\b",
        "DRIVER_LIB_MISMATCH": r"version mismatch",
        "CUDA_DRIVER_TOO_OLD": r"(cuda|driver|rocm) version|newer cuda|\bptx\b|compute capability|kernel image",
        "DEVICE_PERMISSION": r"selinux|apparmor|seccomp|(denied|permitted).*/dev/|/dev/.*(denied|permitted)",
        "DEVICE_NODES_MISSING": r"\bcdi\b|/dev/(nvidia|dri|kfd|infiniband|neuron|accel|vfio)|device nodes?\b",
        "DEVICE_PLUGIN_FAILING": r"device[- ]?plugin|kubelet\.sock|(node)?prepare ?(devices|resource)",
        "DRIVER_MISSING": r"kernel (module|headers)|modprobe|insmod|(nvidia|gpu|kernel) driver|/sys/module|nouveau",
        "RUNTIME_NOT_CONFIGURED": r"nvidia-c|container toolkit|runtime ?(class|handler)|libcuda|libnvidia|\bnvml\b",
        "SHM_TOO_SMALL": r"shared memory|/dev/shm|bus error",
    }
)
"""Code → what complaints about devices and what lies below them speak of, the narrowest first."""
CLUSTER = _vocabulary(
    {
        "DRA_CLASS_MISSING": r"device ?class(es)?\b",
        "DRA_CLAIM_INVALID": r"resource ?claims?\b|claim ?template|\bCEL\b",
        "EPHEMERAL_STORAGE": r"no space left|disk (pressure|space|quota)|ephemeral|inodes?\b|(image|node)fs",
        "TOPOLOGY_MANAGER_REFUSED": r"\bnuma\b|topology manager|cpu manager",
        "POD_COUNT_LIMIT": r"too many pods|\bip address|\bipam\b|\beni\b|subnet",
        "POLICY_DENIED": r"webhook|admission|\bpolic(y|ies)\b|forbidden|violat|\brbac\b|not allowed|service ?account",
        "IMAGE_PULL_FAILED": r"pull\w*\b.*\bimage|image pull|registry|manifest (unknown|for)|pull access",
        "STORAGE_INSUFFICIENT": r"volumes?\b|\bpvcs?\b|persistent|\bcsi\b|\bmount|storage ?class|filesystem",
        "INVALID_OBJECT": r"(config ?map|secret)\b.*(not found|not exist)|unknown field|unsupported value|malformed",
    }
)
"""The same for complaints of whoever starts pods."""
PLACEMENT = _vocabulary(
    {
        "CLOUD_CAPACITY": r"insufficient\w*capacity|out of (stock|capacity)|stockout|machine ?type|vcpu",
        "KUEUE_QUEUE_MISSING": r"\bqueue\b.*(not found|not exist|closed|stopped|inactive)|(find|unknown) .{0,20}queue",
        "KUEUE_QUOTA_INSUFFICIENT": r"\bqueue\b",
        "RESOURCE_QUOTA_EXCEEDED": r"\bquota",
        "WRONG_SCHEDULER": r"scheduler\b.*(not found|not running|not installed)|no matches for kind",
        "GANG_INCOMPLETE": r"\bgang\b|pod ?group|min(member|available)",
        "NODE_UNSCHEDULABLE": r"node .{0,60}(not ready|unreachable|lost|shut|cordon|reboot)",
        "TAINT_NOT_TOLERATED": r"taint|tolerat",
        "POD_AFFINITY_CONFLICT": r"anti-?affinity|pod ?affinity",
        "SELECTOR_MISMATCH": r"affinity|selector|no matching nodes?",
    }
)
"""The same for complaints about pods that have no node, or do not exist."""
REFUSAL = re.compile(
    r"denied (the request|by)|is forbidden: (?!exceeded)|violat\w+ .{0,40}(polic|constraint)|not permitted in", re.I
)
"""That somebody refuses it says more than what the refusal is about."""
QUOTED_NAMES = re.compile(r"\"[\w./-]*\"|'[\w./-]*'")
STATEMENTS = re.compile(r"; |\n")
WRAPPED = re.compile(r"(?<=[^\s:]): ")
LONGEST = 4_000
MANY_PODS = 20


def worded_finding(evidence: Evidence, subject: Subject, *, is_running: bool) -> Finding | None:
    """The first statement about the subject whose words tell what is wrong; None if none does.

    Of a program that has run, only words about devices count: its other words are its own.
    """
    items = [item for item in subject.related if item.kind != "Workload"]
    pods = subject.pods[:MANY_PODS]
    names = {item.name for item in (*items, *pods)}
    about = (*DEVICES, *CLUSTER) if pods and not subject.pending else (*DEVICES, *CLUSTER, *PLACEMENT)
    reports = () if is_running else _unread(_reports(evidence, items, pods), API, KUBELET)
    own = _unread(_own_words(evidence, pods), CONTAINER)
    for report, vocabulary in (*((report, about) for report in reports), *((report, DEVICES) for report in own)):
        code = code_of_words(report.text, vocabulary, names)
        if code:
            message = f"{CAUSES[code].meaning}, to judge by the words alone: {report.text.strip()[:LONG_LINE]}"
            return Finding(code, message, (report.quote,))
    return None


def _unread(reports: Iterable[Report], *sources: str) -> Iterator[Report]:
    """Those that no pattern matches: what a rule has understood and ruled out is not judged again."""
    for report in reports:
        if not any(find_matches_in_text(report.text, report.speaker, source) for source in sources):
            yield report


def code_of_words(text: str, vocabulary: _Vocabulary, names: Iterable[str] = ()) -> str:
    """What a complaint is about; empty if it is none, names nothing that is known, or several things.

    What objects are called says nothing about what is wrong with them.
    """
    if not COMPLAINS.search(text) or COUNTED_NODES.search(text):
        return ""
    if vocabulary is not DEVICES and REFUSAL.search(text):
        return "POLICY_DENIED"
    said = QUOTED_NAMES.sub("", text[:LONGEST])
    for name in names:
        said = said.replace(name, "")
    codes = set(filter(None, (_innermost(statement, vocabulary) for statement in STATEMENTS.split(said))))
    return codes.pop() if len(codes) == 1 else ""


def _innermost(statement: str, vocabulary: _Vocabulary) -> str:
    """Of errors that wrap one another, the last that names something: what went wrong first."""
    parts = reversed(WRAPPED.split(statement))
    named = (next((code for code, words in vocabulary if words.search(part)), "") for part in parts)
    return next(filter(None, named), "")


def _reports(evidence: Evidence, items: list[ClusterObject], pods: Sequence[ClusterObject]) -> Iterator[Report]:
    """What the runtime says about containers that it can't create, then what controllers say."""
    for pod in pods:
        if (said := uncreated(pod)) is not None:
            yield Report(f"status of {pod.title}", said[1])
    yield from reports_about(evidence, [*items, *pods], pods)


def _own_words(evidence: Evidence, pods: Sequence[ClusterObject]) -> Iterator[Report]:
    """Lines of the logs of failing pods, the last first."""
    for pod in pods:
        for log in evidence.logs_of(pod) if is_failing(pod) else ():
            yield from (Report(log.origin, line) for line in reversed(log.lines))
