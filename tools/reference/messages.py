"""The page docs/reference/messages.md: the sentences that users see, with an example of each.

`tools.reference` calls `messages_reference`. Reasons, causes and rules come from their registries. The other sentences
are found in the source by `message_templates`; `message_examples` fills them in.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

from tools.reference.message_examples import example, room_example
from tools.reference.message_placeholders import CLOSE, OPEN, PLACEHOLDER, is_sentence
from tools.reference.message_rooms import ROOMS, room_texts
from tools.reference.message_templates import Call, calls_in, functions_of, texts_returned

import windlass.diagnose
import windlass.diagnose.doctor
from windlass.apply import asks, evictor, executor, kueue, volume_binding
from windlass.apply.kueue import NON_PREEMPTION_MESSAGES
from windlass.cluster.workloads import build_workload, resource_quota_holds, workload_parts
from windlass.diagnose import unschedulable
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.check.all_rules import RULES
from windlass.diagnose.check.rule import Rule
from windlass.diagnose.doctor.local_host import CUDA_ERRORS
from windlass.model import bug, hold_document, pod_group, refusal, requests, verdict
from windlass.model.kueue import workloads as kueue_workloads
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.owners import app_wrapper, job_sets, volcano
from windlass.model.reasons import NODE_REASONS, POD_REASONS, insufficient_reason
from windlass.model.verdict import NEVER_FITS, UNEXPLAINED_PUBLIC_MESSAGE_BY_CODE
from windlass.operator.kinds.reasons import REASONS
from windlass.placement import decisions, empty_cluster, unhealthy_gpus, workload_placer
from windlass.placement.explain import (
    advisor,
    changes,
    limits,
    preemption_obstacles,
    quota_limits,
    relaxed_constraints,
    relief,
    remedies,
    stuck_pods,
    unmatched_selectors,
)
from windlass.placement.explain.cause import CAUSE_ORDER
from windlass.placement.filters import prefilter
from windlass.placement.timeplan import messages
from windlass.queueing import admission_state, admit, cycle, flavor_assigner, flavor_assignment
from windlass.queueing.outcome import FLAVOR_MISMATCH, QUEUE_MISSING, QUOTA_INSUFFICIENT
from windlass.scheduler import take_over
from windlass.sharing import mig_config, plugin_config
from windlass.telemetry.alert_rules import GROUPS as ALERT_GROUPS
from windlass.web import jobs

INTRODUCTION = """\
# Messages

The sentences that users see. `{…}` is filled in; the example shows how it may read. Parts that may be left out are
shown. Codes, rule names and check names are stable; the wording is not, so scripts should read `-o json`.

Not listed: messages of Kubernetes, Kueue and NVIDIA's components that Windlass repeats, what the API server of
`windlass up` answers in their words, logs, and errors in objects (the event `Unreadable`), in files and on the command
line, which name the field and the remedy. How the parts of a hold make one message: [verdicts](../guide/verdicts.md).
"""
REASON_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", GPU_RESOURCE)
ANY_CODE = "any"
CODE_OF_SEVERITY = {"WAITING": QUOTA_INSUFFICIENT, "EXCEEDS_MAXIMUM": QUOTA_INSUFFICIENT, "NO_MATCH": FLAVOR_MISMATCH}
CODE = re.compile(r"[A-Z][A-Z0-9_]+")
FIXED_CODE = re.compile(r"[A-Z]\w+")
"""A code, or the reason of an event or condition, that a source names itself."""

NEVER_MADE = re.compile(
    f"Queue\\.scheduling.* is stopped \\(spec|stopPolicy of Queue\\.scheduling|LocalQueue {OPEN}queue{CLOSE} (is|as)|"
    "open (?!Queue\\.scheduling\\.volcano)"
)
"""Queues of KAI and Volcano have no stopPolicy, only Volcano's are opened, and a LocalQueue has its namespace there:
the source keeps them apart by a test that is not followed."""

Row = tuple[str, ...]


class Source(NamedTuple):
    """The calls of a module that take a sentence."""

    module: ModuleType
    call: str
    code: tuple[int, str]
    """Position and keyword of the argument; a fixed code has the position -1."""
    text: tuple[int, str]
    function: str = ""
    """Only calls of this function; empty: of all functions."""


HOLDS = (
    Source(build_workload, "pair", (1, ""), (0, "")),
    Source(workload_parts, "pair", (1, ""), (0, "")),
    Source(kueue_workloads, "pair", (1, ""), (0, "")),
    Source(pod_group, "PodGroup", (-1, "NOT_IMPLEMENTED"), (-1, "hold")),
    Source(app_wrapper, "Owner", (-1, "NOT_IMPLEMENTED"), (-1, "hold")),
    Source(volcano, "Owner", (-1, "NOT_IMPLEMENTED"), (-1, "hold")),
    Source(resource_quota_holds, "_held", (2, ""), (1, "")),
    Source(prefilter, "_with_text", (0, ""), (1, "")),
    Source(workload_placer, "PlacementResult", (-1, "code"), (-1, "message")),
    Source(empty_cluster, "NeverFits", (0, ""), (1, "")),
    Source(decisions, "Verdict", (0, ""), (-1, "detail")),
    Source(flavor_assigner, "_refuse", (1, ""), (0, "")),
    Source(cycle, "skip", (1, "KUEUE_QUOTA_INSUFFICIENT"), (0, "")),
    Source(admission_state, "hold", (1, ""), (2, "")),
    Source(admit, "hold_all", (-1, "ADMISSION_DEFERRED"), (0, "")),
    Source(admit, "hold", (1, ""), (2, ""), "_hold_the_rest"),
)
OBSTACLES = (
    *(Source(preemption_obstacles, "Obstacle", (0, ""), (place, "")) for place in (1, 2)),
    *(Source(stuck_pods, "Obstacle", (0, ""), (place, "")) for place in (1, 2)),
    Source(unhealthy_gpus, "Obstacle", (0, ""), (1, "")),
)
WORKLOAD_CONDITIONS = ("admission_status", "backoff_finished_status", "pods_ready_status", "finished_status")
EVENTS = (
    Source(executor, "Event", (1, ""), (2, "")),
    Source(evictor, "Event", (1, ""), (2, "")),
    Source(asks, "_record", (1, ""), (2, "")),
    Source(executor, "_enqueue_condition", (1, ""), (2, "")),
    Source(volume_binding, "_bind_error", (-1, "FailedScheduling"), (1, "")),
    *(Source(kueue, "_condition", (2, ""), (3, ""), function) for function in WORKLOAD_CONDITIONS),
)
LIMITS = tuple(Source(module, "Limit", (0, ""), (1, "")) for module in (limits, quota_limits, unmatched_selectors))
CHANGES = (
    Source(changes, "Change", (0, ""), (1, "")),
    Source(relaxed_constraints, "Change", (0, ""), (1, "")),
)
RETURNED = {
    "hold": ((admit, "_why_not_queued"),),
    "help": ((verdict, "_moves_text"), (refusal, "text"), (refusal, "public_text")),
    "plan": (
        (messages, "delays_plan_message"),
        (messages, "planned_start_message"),
        (messages, "no_planned_start_message"),
        (messages, "beyond_depth_message"),
        (verdict, "_public_outlook"),
        (hold_document, "_basis"),
    ),
    "detail": ((advisor, "_gang_detail"), (advisor, "_size_detail")),
    "page": ((jobs, "_suspended_message"),),
    "remedy": ((remedies, "find_remedy"),),
    "bug": ((bug, "message"),),
    "not implemented": ((job_sets, "exclusive_hold"),),
    "flavor": ((workload_placer, "ineligible_reason"),),
    "assignment": ((flavor_assignment, "message"),),
    "stopped": ((decisions, "_stop_message"),),
    "take over": ((take_over, "_reason"),),
}
"""Functions whose return values are sentences."""
RULE_ERRORS = {
    "gpu-whole-number": (requests, "parse_amount", "FRACTIONAL_GPU_REQUEST"),
    "gpu-request-equals-limit": (requests, "_check_against_limit", "REQUESTS_NE_LIMITS"),
    "plugin-config": (plugin_config, "resolve_config", ""),
    "mig-config": (mig_config, "read_mig_configs", ""),
}
"""Rules of check that repeat errors → the function that raises them, and their code."""


def messages_reference() -> str:
    reasons = [*NODE_REASONS, *map(insufficient_reason, REASON_RESOURCES), *POD_REASONS]
    public = [(f"`{code}`", message) for code, message in UNEXPLAINED_PUBLIC_MESSAGE_BY_CODE.items()]
    causes = [(f"`{code}`", cause.meaning, cause.remedy) for code, cause in CAUSES.items()]
    events = [*_source_rows(EVENTS), *(("`Evicted`", text, "") for text in NON_PREEMPTION_MESSAGES.values())]
    events += [("`Evicted`", *row) for row in _returned_rows("stopped")]
    events += [("`TakeOverRefused`", *row) for row in _returned_rows("take over")]
    events += [("`Suspended`", *row) for row in _returned_rows("page")]
    sections = [
        INTRODUCTION,
        "## Why a node refuses a pod\n\nIn plans, conditions and events, counted by node in kube-scheduler's words.\n",
        _table(
            ("code", "message", "kube-scheduler's words", "what to do"),
            [(f"`{reason.code}`", reason.message, reason.kube_words, reason.remedy) for reason in reasons],
        ),
        *_engine_sections(),
        "## The operator's reasons\n\nOf nodes, pools, changes and repairs; last, what follows when the time is up.\n",
        _table(
            ("reason", "message", "what to do", "then"),
            [(f"`{reason}`", info.meaning, info.remedy, info.after) for reason, info in REASONS.items()],
        ),
        "## Alerts\n",
        _table(
            ("alert", "severity", "message", "what to do"),
            [
                (f"`{rule.alert}`", rule.severity, rule.summary, rule.description)
                for rules in ALERT_GROUPS.values()
                for rule in rules
            ],
        ),
        "## Events and conditions\n\nBeside the message of a hold, which a waiting pod's condition and event have.\n",
        _table(("reason", "message", "example"), events),
        "## Holds that were not explained\n\nWhat the owner reads where the detail could name other tenants.\n",
        _table(("code", "message"), public),
        "## Causes\n\nThe sentence of `why` where nothing more is known than the code.\n",
        _table(("code", "message", "what to do"), causes),
        "## Sentences of why\n\nWithout a remedy here, that of the code follows.\n",
        _table(("code", "message", "example", "what to do"), _why_rows()),
        "## Findings of check\n",
        _table(
            ("rule", "message", "example", "what to do"),
            [row for rule in RULES.values() for row in _rule_rows(rule)],
        ),
        "## Findings of doctor\n\nFaults of a node's GPU stack are told as `why` tells them.\n",
        _table(("check", "message", "example", "cause", "what to do"), _doctor_rows()),
    ]
    page = "\n".join(sections)
    return "\n".join([page, *_room_sections(page)])


def _engine_sections() -> list[str]:
    """What the scheduler says about a hold, part by part."""
    holds = _source_rows(HOLDS)
    known = {row[1] for row in holds}
    holds += [(f"`{QUEUE_MISSING}`", *row) for row in _returned_rows("hold") if row[0] not in known]
    holds += [("`NOT_IMPLEMENTED`", *row) for row in _returned_rows("not implemented")]
    holds += [(f"`{FLAVOR_MISMATCH}`", *row) for row in _returned_rows("flavor")]
    holds += [(f"`{ANY_CODE}`", *row) for row in _returned_rows("assignment")]
    holds += [("`INTERNAL_ERROR`", *row) for row in _returned_rows("bug")]
    holds += [(f"`{ANY_CODE}`", *row) for row in _returned_rows("detail")]
    remedies_of_holds: list[Row] = [(text, "") for text in remedies.REMEDY_BY_CODE.values()]
    remedies_of_holds += _returned_rows("remedy")
    help_rows: list[Row] = [("`relief`", text, example(text)) for text in _relief_texts()]
    start_now = "it would start now"
    help_rows += [("`change`", f"{start_now} {row[1]}", f"{start_now} {row[2]}") for row in _source_rows(CHANGES)]
    help_rows += [("`moves`, `refusals`", *row) for row in _returned_rows("help")]
    help_rows.append(("`infeasible`", NEVER_FITS, ""))
    obstacles = _source_rows(OBSTACLES)
    return [
        "## Holds before nodes are looked at\n\nThe detail of the hold, public where it names only its own objects.\n",
        _table(("code", "message", "example"), holds),
        "## What binds a hold\n\nThe limits of a hold that was explained, by kind.\n",
        _table(("kind", "message", "example"), list(_source_rows(LIMITS))),
        "## What would help\n",
        _table(("part", "message", "example"), help_rows),
        "## What keeps others from making room\n\nThe obstacles of a hold, by kind: for operators, then for owners.\n",
        _table(("kind", "message", "example"), obstacles),
        "## Planned starts\n",
        _table(("message", "example"), list(_returned_rows("plan"))),
        "## Remedies of holds\n\nAfter “what would help”, where no end of other work and no change does.\n",
        _table(("message", "example"), remedies_of_holds),
    ]


def _room_sections(page: str) -> Iterator[str]:
    """What commands, the page and the cluster of `windlass up` say and the page of messages does not have so far."""
    yield "## Commands, the page and windlass up\n\nBy the file that has the sentence, or a part of one.\n"
    for heading in sorted(ROOMS, key=str.lower):
        files_by_text: dict[str, list[str]] = {}
        for file, text in room_texts(heading):
            if f"| {_cell(text)} |" not in page:
                files_by_text.setdefault(text, []).append(file)
        rows = [(" ".join(dict.fromkeys(files)), text, room_example(text)) for text, files in files_by_text.items()]
        yield f"### {heading}\n"
        yield _table(("in", "message", "example"), rows)


def _table(header: Row, rows: Iterable[Row]) -> str:
    lines = [header, ("---",) * len(header), *dict.fromkeys(rows)]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return PLACEHOLDER.sub(r"{\1}", text).replace("|", chr(92) + "|")


# Rows from the source


def _calls(modules: Iterable[ModuleType], name: str, only: str = "") -> Iterator[Call]:
    for module in modules:
        for function in [only] if only else functions_of(module):
            yield from (call for call in calls_in(module, function) if call.name == name)


def _source_rows(sources: Sequence[Source]) -> list[Row]:
    code_of_reason = {reason.name: reason.code for reason in POD_REASONS} | CODE_OF_SEVERITY
    rows = []
    for source in sources:
        for call in _calls([source.module], source.call, source.function):
            codes = call.texts(*source.code) or ((source.code[1],) if FIXED_CODE.fullmatch(source.code[1]) else ())
            known = [code_of_reason.get(code.strip(OPEN + CLOSE), code) for code in codes]
            if source.call == "pair":
                known = [code for code in known if CODE.fullmatch(code)]
            rows += [(code, text) for code in known for text in call.texts(*source.text)]
    return [(f"`{code}`", text, example(text)) for code, text in _best_codes(rows)]


def _best_codes(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Sentences with their codes. `any` stands for a code that no call names."""
    codes_by_text: dict[str, dict[str, None]] = {}
    for code, text in rows:
        if (
            is_sentence(text) and "  " not in text
        ):  # two spaces: a name that is empty there, which the code refuses before
            codes_by_text.setdefault(text, {})[ANY_CODE if OPEN in code else code] = None
    for text, codes in codes_by_text.items():
        known = [code for code in codes if code != ANY_CODE]
        yield from ((code, text) for code in known or [ANY_CODE])


def _returned_rows(part: str) -> Iterator[Row]:
    for module, function in RETURNED[part]:
        for text in map(_without_namespace, texts_returned(module, function)):
            if is_sentence(text) and not NEVER_MADE.search(text):
                yield text, example(text)


def _without_namespace(text: str) -> str:
    """Queues of KAI and Volcano are in none."""
    return text.replace(f" in namespace {OPEN}namespace{CLOSE}", "") if "Queue.scheduling" in text else text


def _relief_texts() -> list[str]:
    """Relief composes its sentence of a basis, which `relief` states."""
    calls = [*_calls([relief], "Relief"), *_calls([relief], "replace")]
    found = (text for call in calls for text in call.texts(4, "basis"))
    basis = dict.fromkeys(text for text in found if is_sentence(text))
    start = f"it could start once {OPEN}count{CLOSE} running workloads end"
    known = {text: f", at {OPEN}at{CLOSE}" for text in basis if text.startswith("by ")}
    return [f"{start}{known.get(text, '')} ({text}): {OPEN}names{CLOSE}" for text in basis]


def _modules(package: ModuleType) -> list[ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def _why_rows() -> list[Row]:
    calls = list(_calls(_modules(windlass.diagnose), "Finding"))
    # What an explanation says depends on the code that it is given.
    for code in CAUSE_ORDER:
        found = calls_in(unschedulable, "_refused", arguments={"code": (code,)})
        calls += [call for call in found if call.name == "Finding"]
    own_remedies = dict[tuple[str, str], dict[str, None]]()
    for call in calls:
        for code, text in itertools.product(call.texts(0, "code"), call.texts(1, "headline")):
            found = own_remedies.setdefault((ANY_CODE if OPEN in code else code, text), {})
            found.update(dict.fromkeys(call.texts(4, "remedy")))
    rows = [
        (f"`{code}`", text, example(text), _listed(own_remedies[code, text]))
        for code, text in _best_codes(own_remedies)
    ]
    return sorted(rows, key=lambda row: row[0])


def _rule_rows(rule: Rule) -> Iterator[Row]:
    """Of the rule's function and of the functions of its module that it calls."""
    module = importlib.import_module(rule.check.__module__)
    calls = [
        (call.texts(0, "message"), call.texts(2, "fix"))
        for call in calls_in(module, rule.check.__name__, follow_all=True)
        if call.name == "RuleFinding"
    ]
    if rule.name in RULE_ERRORS:
        source, function, code = RULE_ERRORS[rule.name]
        calls += [
            (call.texts(0), call.texts(-1, "remedy"))
            for call in calls_in(source, function, follow_all=True)
            if call.name == "InputError" and code in ("", *call.texts(-1, "code"))
        ]
    for texts, fixes in calls:
        for text in filter(is_sentence, texts):
            yield f"`{rule.name}`", text, example(text), _listed(fixes)


def _doctor_rows() -> Iterator[Row]:
    for call in _calls(_modules(windlass.diagnose.doctor), "Symptom"):
        for check in call.texts(0):
            for text in filter(is_sentence, call.texts(3)):
                if OPEN not in check:
                    yield f"`{check}`", text, example(text), _listed(call.texts(4)), _listed(call.texts(5))
    for error, (cause, remedy) in CUDA_ERRORS.items():
        yield "`cuda`", f"CUDA answers error {error}", "", cause, remedy


def _listed(texts: Iterable[str]) -> str:
    return " / ".join(filter(is_sentence, texts))
