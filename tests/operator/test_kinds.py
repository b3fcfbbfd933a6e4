"""The operator's kinds: what is refused, with the field's path; and CRDs that say the same as the structs."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.cli.install_operator_crds import CHOICES, COLUMNS, RULES, operator_crds
from windlass.embedded.api.structural_schema import Walk, schema_errors
from windlass.model.errors import InputError
from windlass.operator.kinds.codec import decode_operator_object, encode_operator_object
from windlass.operator.kinds.reasons import REASONS, Reason

STACK: dict[str, Any] = {"nodes": {"matchLabels": {"pool": "a"}}}
CHANGE: dict[str, Any] = {"stack": "a", "driver": {"version": "590.1"}}
GATE: dict[str, Any] = {"name": "p99", "query": "x", "max": 1}


def tree(kind: str, spec: dict[str, Any], name: str = "a") -> dict[str, Any]:
    return {"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("GPUStack", {"nodes": {}}, "spec.nodes"),
        ("GPUStack", STACK | {"driver": {"source": "magic"}}, "spec.driver.source"),
        ("GPUStack", STACK | {"driver": {"source": "container"}}, "spec.driver.image"),
        ("GPUStack", STACK | {"driver": {"version": "a b"}}, "spec.driver.version"),
        ("GPUStack", STACK | {"driver": {"source": "gpu-operator", "version": "590.1"}}, "spec.driver.version"),
        ("GPUStack", STACK | {"takeOver": ["plugin", "driver"]}, "spec.takeOver[1]"),
        ("GPUStack", STACK | {"maxUnavailable": 0}, "spec.maxUnavailable"),
        ("GPUStack", STACK | {"maxUnavailable": "110%"}, "spec.maxUnavailable"),
        ("GPUStack", STACK | {"maxUnavailabel": 1}, "spec.maxUnavailabel"),
        ("GPUStack", STACK | {"repair": {"settle": "soon"}}, "spec.repair.settle"),
        ("GPUStack", STACK | {"repair": {"ticket": {"url": "ftp"}}}, "spec.repair.ticket.url"),
        ("GPUStack", STACK | {"repair": {"breakerPercent": 0}}, "spec.repair.breakerPercent"),
        ("FleetChange", {"stack": "a"}, "spec"),
        ("FleetChange", CHANGE | {"mig": {"config": "all"}}, "spec"),
        ("FleetChange", CHANGE | {"waves": []}, "spec.waves"),
        ("FleetChange", CHANGE | {"waves": [{"nodes": 1, "bake": "x"}]}, "spec.waves[0].bake"),
        ("FleetChange", CHANGE | {"gates": [GATE, GATE]}, "spec.gates[1].name"),
        ("FleetChange", CHANGE | {"gates": [GATE | {"name": "gpu-faults"}]}, "spec.gates[0].name"),
        ("FleetChange", CHANGE | {"gates": [{"name": "p99", "query": "x"}]}, "spec.gates[0]"),
        ("FleetChange", CHANGE | {"gates": [GATE | {"maxRatio": -1.0}]}, "spec.gates[0].maxRatio"),
        ("FleetChange", CHANGE | {"windows": [{"start": "25:00", "end": "04:00"}]}, "spec.windows[0].start"),
        ("FleetChange", CHANGE | {"freezes": [{"from": "x", "until": "y"}]}, "spec.freezes[0].from"),
        ("FleetChange", CHANGE | {"onFailure": "Cry"}, "spec.onFailure"),
        ("FleetChange", CHANGE | {"command": {"id": "1", "verb": "Dance"}}, "spec.command.verb"),
        ("GPURepair", {"node": ""}, "spec.node"),
        ("GPURepair", {"node": "n", "device": -2}, "spec.device"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(kind: str, spec: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as refused:
        decode_operator_object(tree(kind, spec))
    assert refused.value.path == path
    assert refused.value.remedy
    assert str(refused.value).startswith(f"{kind} a: {path}")


@pytest.mark.parametrize(("kind", "spec"), [("GPUStack", STACK), ("FleetChange", CHANGE), ("GPURepair", {"node": "n"})])
def test_what_is_right_comes_back_as_it_was(kind: str, spec: dict[str, Any]) -> None:
    found = encode_operator_object(decode_operator_object(tree(kind, spec)))
    assert found["spec"] == spec
    schema = next(crd for crd in operator_crds() if crd["spec"]["names"]["kind"] == kind)
    whole = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(schema_errors(found, whole, "", Walk(100_000))) == []


def test_another_version_and_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="unknown version"):
        decode_operator_object(tree("GPUStack", STACK) | {"apiVersion": "windlass.dev/v1"})
    with pytest.raises(InputError, match="unknown kind"):
        decode_operator_object(tree("GPUStak", STACK))


def test_every_reason_says_what_it_means_and_what_to_do() -> None:
    assert set(REASONS) == set(Reason)
    assert all(info.meaning and info.remedy for info in REASONS.values())


def test_rules_choices_and_columns_are_about_fields_that_exist() -> None:
    crds = {crd["spec"]["names"]["kind"]: crd for crd in operator_crds()}
    for path in (*RULES, *CHOICES):
        kind, _, rest = path.partition(".")
        assert _at(crds[kind], rest), path
    for kind, columns in COLUMNS.items():
        for _, column, _ in columns:
            assert column.startswith(".metadata.") or _at(crds[kind], column.strip(".")), column
        assert crds[kind]["spec"]["versions"][0]["subresources"] == {"status": {}}
        assert crds[kind]["spec"]["scope"] == "Cluster"


def _at(crd: dict[str, Any], path: str) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path.split("."):
        name = part.removesuffix("[]")
        schema = schema["properties"][name]
        schema = schema["items"] if part.endswith("[]") else schema
    found: dict[str, Any] = schema
    return found
