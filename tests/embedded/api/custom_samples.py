"""A CustomResourceDefinition with a bit of everything, and objects of it, good and bad."""

from __future__ import annotations

from typing import Any

from tests.embedded.api.samples import made

from windlass.model.unstructured import Unstructured

GROUP = "example.com"


def schema() -> Unstructured:
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                    "mode": {"type": "string", "enum": ["Fast", "Slow"], "default": "Fast"},
                    "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
                    "port": {"x-kubernetes-int-or-string": True},
                    "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
                    "flag": {"type": "boolean", "default": False},
                    "when": {"type": "string", "format": "date-time"},
                    "maybe": {"type": "string", "nullable": True},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "labels": {
                        "type": "object",
                        "additionalProperties": {"type": "string"},
                        "maxProperties": 2,
                    },
                    "parts": {
                        "type": "array",
                        "maxItems": 3,
                        "minItems": 1,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string"},
                                "weight": {"type": "integer", "default": 1},
                            },
                        },
                    },
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "steps": {"type": "array", "items": {"type": "string"}},
                    "nested": {
                        "type": "object",
                        "default": {},
                        "properties": {"depth": {"type": "integer", "format": "int32", "default": 3}},
                    },
                    "either": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                    },
                    "ip": {"type": "string", "format": "ipv4"},
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "conditions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                        },
                    },
                },
            },
        },
    }


def definition(**version: Any) -> Unstructured:
    return made(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"widgets.{GROUP}",
        spec={
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema()},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
                    },
                    "selectableFields": [{"jsonPath": ".spec.mode"}],
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
                        {
                            "name": "Ready",
                            "type": "string",
                            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                        },
                        {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
                        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    **version,
                }
            ],
        },
    )


def widget(called: str = "w", /, **spec: Any) -> Unstructured:
    return made(f"{GROUP}/v1", "Widget", called, spec={"size": 2, **spec})


GOOD: list[Unstructured] = [
    widget("silent"),
    widget(
        "full",
        name="abc",
        port="http",
        ratio=1.5,
        when="2026-01-02T03:04:05Z",
        maybe=None,
        free={"a": {"b": [1]}},
        labels={"a": "b"},
        parts=[{"name": "x"}, {"name": "y", "weight": 5}],
        tags=["a", "b"],
        steps=["a", "a"],
        nested={},
        either={"a": "x"},
        ip="10.0.0.1",
        unknown=5,
    ),
    {**widget("ports", port=80, flag=None, mode=None), "extra": 1},
]

BAD: list[Unstructured] = [
    made(f"{GROUP}/v1", "Widget", "w"),
    made(f"{GROUP}/v1", "Widget", "w", spec={}),
    made(f"{GROUP}/v1", "Widget", "w", spec=[]),
    made(f"{GROUP}/v1", "Widget", "W", spec={"size": 2}),
    widget(size="3"),
    widget(size=2.5),
    widget(size=0),
    widget(size=11),
    widget(size=None),
    widget(mode="Medium"),
    widget(mode=5),
    widget(name="ABC"),
    widget(name="a"),
    widget(name="abcdef"),
    widget(port=1.5),
    widget(port=True),
    widget(ratio=0),
    widget(ratio=0.7),
    widget(ratio="x"),
    widget(flag="yes"),
    widget(when="tomorrow"),
    widget(labels={"a": 1}),
    widget(labels={"a": "1", "b": "2", "c": "3"}),
    widget(parts=[]),
    widget(parts=[{}]),
    widget(parts=[{"name": "a"}, {"name": "a"}]),
    widget(parts=[{"name": str(i)} for i in range(4)]),
    widget(parts="x"),
    widget(tags=["a", "a"]),
    widget(tags=[1]),
    widget(nested={"depth": 3000000000}),
    widget(either={}),
    widget(either={"a": "x", "b": "y"}),
    widget(ip="300.1.1.1"),
    widget(free=5),
    widget(size=0, mode="x", labels={"a": 1}),
]

BAD_DEFINITIONS: list[Unstructured] = [
    {**definition(), "metadata": {"name": "wrong.example.com"}},
    definition(schema=None),
    definition(schema={"openAPIV3Schema": {"properties": {"spec": {"type": "object"}}}}),
    definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}),
    definition(storage=False),
    definition(name="1v"),
    {**definition(), "spec": {**definition()["spec"], "scope": "Galaxy"}},
    {**definition(), "spec": {**definition()["spec"], "group": ""}},
    {**definition(), "spec": {**definition()["spec"], "versions": []}},
]
