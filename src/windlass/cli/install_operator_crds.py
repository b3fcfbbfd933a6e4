"""The CRDs of the operator's kinds, made from the structs that it decodes them into, so that both say the same.

`windlass install operator` prints them and `windlass up` serves them. What types can't say is added by path:
choices, lengths, and CEL rules, which the operator checks once more itself (`operator.kinds`), since not every
server evaluates them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from windlass.cli.install_crds import AGE, Column, make_crd
from windlass.cli.openapi_schema import (
    Schema,
    array,
    boolean,
    enum,
    label_selector,
    map_of,
    object_schema,
    preserve_unknown_fields,
    string,
)
from windlass.model.meta import LabelSelector
from windlass.operator.kinds.codec import STRUCTS
from windlass.operator.kinds.fleet_change import (
    CHANGE_PHASES,
    CHANGE_VERBS,
    COMPONENTS,
    DAYS,
    GATE_VERDICTS,
    ROOM_RULES,
)
from windlass.operator.kinds.gpu_node import CHANGE_RESULTS, DEVICE_STATES, NODE_PHASES, STEP_NAMES, STEP_STATES
from windlass.operator.kinds.gpu_repair import REPAIR_PHASES, REPAIR_VERBS
from windlass.operator.kinds.gpu_stack import DRIVER_SOURCES, REPAIR_POLICIES, TAKEABLE
from windlass.operator.kinds.reasons import Reason
from windlass.operator.resources import GROUP, PLURALS, VERSION

SHORT_NAMES = {"GPUStack": "gst", "GPUNode": "gpun", "FleetChange": "fc", "GPURepair": "gr"}
MAX_ITEMS, MAX_TEXT, MAX_NUMBER = 256, 4096, 2**31 - 1
REASON = enum("", *(reason.value for reason in Reason))
INT_OR_PERCENT: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": "^(100|[0-9]{1,2})%$",
    "x-kubernetes-int-or-string": True,
}
CHOICES: dict[str, tuple[str, ...]] = {
    "GPUStack.spec.driver.source": DRIVER_SOURCES,
    "GPUStack.spec.takeOver[]": TAKEABLE,
    "GPUStack.spec.repair.policy": REPAIR_POLICIES,
    "GPUNode.status.phase": NODE_PHASES,
    "GPUNode.status.steps[].name": STEP_NAMES,
    "GPUNode.status.steps[].state": STEP_STATES,
    "GPUNode.status.devices[].state": DEVICE_STATES,
    "GPUNode.status.change.result": CHANGE_RESULTS,
    "FleetChange.spec.command.verb": CHANGE_VERBS,
    "FleetChange.spec.gates[].family": ("telemetry", "slo"),
    "FleetChange.spec.drain.room": ROOM_RULES,
    "FleetChange.spec.onFailure": ("Rollback", "Hold"),
    "FleetChange.spec.windows[].days[]": DAYS,
    "FleetChange.status.phase": CHANGE_PHASES,
    "FleetChange.status.gates[].verdict": GATE_VERDICTS,
    "GPURepair.spec.command.verb": REPAIR_VERBS,
    "GPURepair.status.phase": REPAIR_PHASES,
}
_HAS_LIMIT = "has(self.max) || has(self.min) || has(self.maxRatio) || has(self.minRatio)"
_HAS_LABELS = "has(self.matchLabels) && size(self.matchLabels) > 0"
_HAS_EXPRESSIONS = "has(self.matchExpressions) && size(self.matchExpressions) > 0"
_SAME_COMPONENT = " && ".join(
    f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    for name in COMPONENTS
)
_ONE_COMPONENT = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in COMPONENTS)
RULES: dict[str, tuple[tuple[str, str], ...]] = {
    "GPUStack.spec.nodes": ((f"({_HAS_LABELS}) || ({_HAS_EXPRESSIONS})", "it would select every node"),),
    "GPUStack.spec.driver": (
        (
            "!has(self.source) || self.source != 'container' || (has(self.image) && has(self.version))",
            "a driver container needs image and version",
        ),
        (
            "!has(self.source) || self.source != 'gpu-operator' || "
            "((!has(self.image) || self.image == '') && (!has(self.version) || self.version == ''))",
            "the NVIDIADriver says image and version",
        ),
    ),
    "FleetChange.spec": (
        (f"{_ONE_COMPONENT} == 1", f"a change has exactly one component: {', '.join(COMPONENTS)}"),
        ("self.stack == oldSelf.stack", "the stack of a change can't be changed; start another"),
        (_SAME_COMPONENT, "what a change brings can't be changed; start another"),
    ),
    "FleetChange.spec.gates[]": ((_HAS_LIMIT, "a gate without a limit never fails"),),
    "GPURepair.spec": (
        (
            "self.node == oldSelf.node && has(self.device) == has(oldSelf.device) && "
            "(!has(self.device) || self.device == oldSelf.device)",
            "what is repaired can't be changed; open another",
        ),
    ),
}
"""Path → rules in CEL, with their messages."""
COLUMNS: dict[str, tuple[Column, ...]] = {
    "GPUStack": (
        ("Nodes", ".status.nodes", "integer"),
        ("Ready", ".status.ready", "integer"),
        ("Unavailable", ".status.unavailable", "integer"),
        ("Driver", ".status.current.driver", "string"),
        ("Change", ".status.change", "string"),
        ("Breaker+", ".status.breaker", "string"),
        AGE,
    ),
    "GPUNode": (
        ("Stack", ".status.stack", "string"),
        ("Phase", ".status.phase", "string"),
        ("Reason", ".status.reason", "string"),
        ("Driver", ".status.driver", "string"),
        ("Change", ".status.change.change", "string"),
        ("Message+", ".status.message", "string"),
        AGE,
    ),
    "FleetChange": (
        ("Stack", ".spec.stack", "string"),
        ("To", ".status.to", "string"),
        ("Phase", ".status.phase", "string"),
        ("Reason", ".status.reason", "string"),
        ("Changed", ".status.changed", "integer"),
        ("Nodes", ".status.nodes", "integer"),
        ("Message+", ".status.message", "string"),
        AGE,
    ),
    "GPURepair": (
        ("Node", ".spec.node", "string"),
        ("GPU", ".spec.device", "integer"),
        ("Fault", ".spec.fault", "string"),
        ("Phase", ".status.phase", "string"),
        ("Reason", ".status.reason", "string"),
        ("Message+", ".status.message", "string"),
        AGE,
    ),
}


def operator_crds() -> list[dict[str, Any]]:
    return [_crd(kind, struct) for kind, struct in STRUCTS.items()]


def _crd(kind: str, struct: type) -> dict[str, Any]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    fields = {
        field.encode_name: schema_of(field.type, f"{kind}.{field.encode_name}")
        for field in info.fields
        if field.encode_name in ("spec", "status")
    }
    return make_crd(
        *(GROUP, (VERSION,), kind, PLURALS[kind], fields, (SHORT_NAMES[kind],)),
        namespaced=False,
        required="spec" if "spec" in fields else "",
        columns=COLUMNS[kind],
    )


def schema_of(info: inspect.Type, path: str) -> Schema:
    """The structural schema of a type, bounded everywhere, so that the cost of rules can be estimated."""
    schema = _schema_of(info, path)
    if path in CHOICES:
        schema = enum(*CHOICES[path])
    if path.endswith(".reason") and ".status." in path and ".conditions" not in path:
        schema = dict(REASON)
    if path in RULES:
        rules = [{"rule": rule, "message": message} for rule, message in RULES[path]]
        schema = {**schema, "x-kubernetes-validations": rules}
    return schema


def _schema_of(info: inspect.Type, path: str) -> Schema:
    if isinstance(info, inspect.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
        if len(kinds) == 1:
            return schema_of(kinds[0], path)
        return dict(INT_OR_PERCENT)
    if isinstance(info, inspect.StructType):
        return _struct_schema(info, path)
    if isinstance(info, inspect.VarTupleType):
        return array(schema_of(info.item_type, f"{path}[]"), MAX_ITEMS)
    if isinstance(info, inspect.DictType) and isinstance(info.value_type, inspect.AnyType):
        return preserve_unknown_fields()
    if isinstance(info, inspect.DictType):
        return map_of(string(max_length=MAX_TEXT), MAX_ITEMS)
    if isinstance(info, inspect.BoolType):
        return boolean()
    if isinstance(info, inspect.IntType):
        return {"type": "integer", "minimum": -1, "maximum": MAX_NUMBER}
    if isinstance(info, inspect.FloatType):
        return {"type": "number"}
    assert isinstance(info, inspect.StrType), f"{path}: {info}"
    return string(max_length=MAX_TEXT)


def _struct_schema(info: inspect.StructType, path: str) -> Schema:
    if info.cls is LabelSelector:
        selector = label_selector()
        return {key: value for key, value in selector.items() if key != "nullable"}
    fields = {field.encode_name: schema_of(field.type, f"{path}.{field.encode_name}") for field in info.fields}
    required = [
        field.encode_name
        for field in info.fields
        if field.required and field.default is msgspec.NODEFAULT and path.startswith(f"{path.partition('.')[0]}.spec")
    ]
    return object_schema(" ".join(required), **fields)
