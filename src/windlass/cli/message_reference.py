"""The page docs/reference/messages.md: the sentences that users see, as far as the code lists them.

`cli.reference` calls `messages_reference`. Reasons, causes and rules come from their registries. Sentences of `why`,
`check` and `doctor` are the string arguments of `Finding`, `RuleFinding` and `Symptom` in the source of `diagnose`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import windlass.diagnose
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.check.all_rules import RULES
from windlass.diagnose.check.rule import Rule
from windlass.diagnose.finding import Finding
from windlass.model.names import kubernetes, kueue, nvidia, others
from windlass.model.names.nvidia import GPU_PRODUCT_LABEL, GPU_RESOURCE
from windlass.model.reasons import NODE_REASONS, POD_REASONS, insufficient_reason
from windlass.model.verdict import PUBLIC_MESSAGE_BY_CODE

INTRODUCTION = """\
# Messages

The sentences that users see, as far as the code lists them. `{…}` is filled in; the example shows how it may read.
Codes, rule names and check names are stable; the wording is not, so scripts should read `-o json`.

Messages of Kubernetes, Kueue and NVIDIA's components that Windlass repeats are not listed, nor are sentences that the
engine composes of several parts (planned starts, changes that would help): see [verdicts](../guide/verdicts.md).
"""
SAMPLES = {
    "absent": GPU_PRODUCT_LABEL,
    "age": "90",
    **dict.fromkeys(("amount", "devices", "least", "low", "minimum", "processes", "promised", "usual"), "8"),
    **dict.fromkeys(("asked", "unhealthy"), "1"),
    **dict.fromkeys(("blocked", "feasible", "gpus", "lacking", "node", "nominated"), "gpu-7"),
    "capabilities": "utility",
    **dict.fromkeys(("capacity", "elsewhere"), "16"),
    "class_name": "gpu.example.com",
    "claim_name": "gpu",
    "code": "GPU_FULL",
    "allocatable": "6",
    "container": "main",
    **dict.fromkeys(("count", "present"), "2"),
    **dict.fromkeys(("desired", "most"), "3"),
    "DEVICE_PLUGIN_FOLDER": "/var/lib/kubelet/device-plugins",
    **dict.fromkeys(("device", "name", "resource"), GPU_RESOURCE),
    "down": "cordoned",
    "driver": "gpu.nvidia.com",
    "error": "100",
    "excess": "1",
    "existing": "gpu.nvidia.com, mig.nvidia.com",
    **dict.fromkeys(("flavor", "value", "wanted"), "h100"),
    "component": "driver",
    "has": "cpu",
    "have": "580.65.06",
    "headline": "6 nvidia.com/gpu are free, but at most 2 on one node",
    **dict.fromkeys(("high", "nodes", "offered", "parallelism", "total"), "4"),
    "item": "device-plugin-config",
    "key": "pool",
    "kind": "ResourceClaim",
    "labels": "app=cache",
    "lacks": "4 nvidia.com/gpu",
    "layout": "all-balanced",
    "level": "rack",
    "listed": "train-a has 2 of 4; train-b has 3 of 4",
    "message": "not found",
    "named": "team/small",
    "namespace": "team",
    "over": "8 nvidia.com/gpu requested, 12 of 16 used",
    "phases": "Running",
    "pinned": "NVIDIA-H100-80GB-HBM3",
    "plugin": "nvidia-device-plugin",
    "pod": "plugin-x7k2p",
    "policy": "Hold",
    "quota": "gpus",
    "queue": "research",
    "reasons": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu",
    "since": "150",
    "state": "Pending",
    "title": "Pod team/train-0",
    "taints": "nvidia.com/gpu=present:NoSchedule",
    "version": "580.95.05",
    "visible": "none",
    "what": "4 cpu",
    "where": "spec.resourceClaims[0]",
    "whole": "7",
    "why": "is in a queue, where it may be preempted",
}
"""Placeholder → text of the example; `…` for all others."""
ECOSYSTEM_NAMES: dict[str, str] = {
    name: value
    for owner in (kubernetes, kueue, nvidia, others)
    for name, value in vars(owner).items()
    if name.isupper()
}
NAME_SAMPLES = {
    "check": "provisioning",
    "class": "nvidia",
    "ClusterQueue": "research",
    "container": "main",
    "group": "workers",
    "key": "config.yaml",
    "named": "my-scheduler",
    "no": "cpu",
    "ResourceClaim": "gpu",
}
"""Word before the placeholder `name` → text of the example."""
REASON_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", GPU_RESOURCE)
MAX_VARIANTS = 8

Row = tuple[str, ...]


def messages_reference() -> str:
    reasons = [*NODE_REASONS, *map(insufficient_reason, REASON_RESOURCES), *POD_REASONS]
    causes = [(f"`{code}`", cause.meaning, Finding(code).sentence) for code, cause in CAUSES.items()]
    public = [(f"`{code}`", message) for code, message in PUBLIC_MESSAGE_BY_CODE.items()]
    sections = [
        INTRODUCTION,
        "## Why a node refuses a pod\n\nIn plans, conditions and events, counted by node in kube-scheduler's words.\n",
        _table(
            ("code", "message", "kube-scheduler's words", "what to do"),
            [(f"`{reason.code}`", reason.message, reason.kube_words, reason.remedy) for reason in reasons],
        ),
        "## Held workloads\n\nWhat its owner reads where no number may be shown, such as in a pod's condition.\n",
        _table(("code", "message"), public),
        "## Causes\n\nThe sentence of `why` where nothing more is known than the code.\n",
        _table(("code", "message", "example"), causes),
        "## Sentences of why\n\nThe remedy of the code follows, unless the case has its own.\n",
        _table(("code", "message", "example"), list(_diagnosis_rows("Finding", 1))),
        "## Findings of check\n",
        _table(("rule", "message", "example"), [row for rule in RULES.values() for row in _rule_rows(rule)]),
        "## Findings of doctor\n",
        _table(("check", "message", "example"), list(_diagnosis_rows("Symptom", 3))),
    ]
    return "\n".join(sections)


def _table(header: Row, rows: Sequence[Row]) -> str:
    lines = [header, ("---",) * len(header), *dict.fromkeys(rows)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _diagnosis_rows(call: str, argument: int) -> Iterator[Row]:
    """(code, template, example) of the calls in `diagnose` whose first argument is a constant."""
    for path in sorted(Path(windlass.diagnose.__path__[0]).rglob("*.py")):
        for function in _functions(ast.parse(path.read_text(encoding="utf-8"))):
            for node in _calls(function, call):
                if isinstance(node.args[0], ast.Constant) and len(node.args) > argument:
                    for template in _templates(node.args[argument], function):
                        yield f"`{node.args[0].value!s}`", template, _example(template)


def _functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _templates(node: ast.expr, function: ast.FunctionDef) -> list[str]:
    """The texts that an expression may have; names of local strings are replaced by their texts."""
    match node:
        case ast.Constant(value=str(text)):
            return [text] if text else []
        case ast.IfExp(body=body, orelse=orelse):
            return [*_templates(body, function), *_templates(orelse, function)]
        case ast.JoinedStr(values=parts):
            variants = [_part(part, function) for part in parts]
            return ["".join(texts) for texts in itertools.islice(itertools.product(*variants), MAX_VARIANTS)]
        case ast.Name(id=name) if name in ECOSYSTEM_NAMES:
            return [ECOSYSTEM_NAMES[name]]
        case ast.Name(id=name):
            value = _assigned(function, name, node.lineno)
            return _templates(value, function) if value is not None else []
    return []


def _part(node: ast.expr, function: ast.FunctionDef) -> list[str]:
    if isinstance(node, ast.FormattedValue):
        inner = _templates(node.value, function) if not isinstance(node.value, ast.IfExp) else []
        return inner or [f"{{{_placeholder(node.value)}}}"]
    return [str(node.value)] if isinstance(node, ast.Constant) else ["{…}"]


def _assigned(function: ast.FunctionDef, name: str, before: int) -> ast.expr | None:
    """The last value that the local variable got before a line; None for parameters and loop variables."""
    assignments = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno < before
        if any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return max(assignments, key=lambda node: node.lineno).value if assignments else None


def _placeholder(node: ast.expr) -> str:
    """The noun of an expression: `node` of `candidate.node.name`, `message` of `error.message`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr="name"):
            return _placeholder(value)
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="len")):
            return "count"
        case ast.Call(func=ast.Name(id="format_amount")):
            return "amount"
        case ast.Subscript(value=value):
            return _placeholder(value)
    return "…"


def _example(template: str) -> str:
    text, *rest = template.split("{")
    for name, _, after in (piece.partition("}") for piece in rest):
        word = (text.split() or [""])[-1] if name == "name" else ""
        text += NAME_SAMPLES.get(word) or SAMPLES.get(name, "…")
        text += after
    return text


def _rule_rows(rule: Rule) -> Iterator[Row]:
    """Of the rule's function and of the functions of its module that it calls."""
    source = Path(inspect.getfile(rule.check)).read_text(encoding="utf-8")
    functions = {function.name: function for function in _functions(ast.parse(source))}
    pending, reached = [rule.check.__name__], set[str]()
    while pending:
        name = pending.pop(0)
        if name in reached or name not in functions:
            continue
        reached.add(name)
        pending += [node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)]
        for call in _calls(functions[name], "RuleFinding"):
            for template in _templates(call.args[0], functions[name]):
                yield f"`{rule.name}`", template, _example(template)
