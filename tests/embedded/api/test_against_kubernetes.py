"""The functions of `embedded.api` compared with a real API server: same requests, same responses and errors."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.embedded.api import custom_samples, refusals, samples, sequences
from tests.embedded.api.desk import Desk
from tests.embedded.api.more_refusals import MORE
from tests.embedded.api.rich_samples import RICH_CLUSTER_WIDE, RICH_NAMESPACED
from tests.embedded.api.states import STATES
from tests.real_cluster.api import Api, until
from tests.real_cluster.control_plane import ControlPlane
from tools.make_api_schemas import TARGET, made

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kinds
from windlass.model.unstructured import Unstructured

KINDS = Kinds()
EVERYTHING = (*samples.CLUSTER_WIDE, *samples.NAMESPACED, *RICH_CLUSTER_WIDE, *RICH_NAMESPACED)
_OURS_ALONE = {"serviceAccount", "serviceAccountName"}
"""The test cluster runs without the admission plugin that fills these in."""
_NOT_OURS = {"kubernetes.io/pv-protection", "kubernetes.io/pvc-protection"}
"""Finalizers that need a controller to take them off; volumes are mere objects in the embedded cluster."""
_UNIQUE = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink")


class Real:
    """The real server, asked by the same words as `Desk`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[int, Unstructured]:
        answer = self._api._pool.request(
            method,
            self._api.url + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": accept},
            timeout=urllib3.Timeout(connect=5, read=60),
        )
        return answer.status, json.loads(answer.data)

    def create(self, obj: Unstructured, query: str = "dryRun=All") -> tuple[int, Unstructured]:
        return self.ask("POST", f"{collection(obj)}?{query}", obj)

    def step(self, step: sequences.Step) -> tuple[int, Unstructured]:
        query = f"fieldManager={step.manager}" + ("&force=true" if step.force else "")
        if step.patch is None:
            return self.ask("POST", f"{collection(step.target)}?{query}", step.target)
        path = f"{collection(step.target)}/{step.target['metadata']['name']}"
        if step.subresource:
            path += f"/{step.subresource}"
        return self.ask("PATCH", f"{path}?{query}", step.patch, step.content_type)


def collection(obj: Unstructured) -> str:
    kind = KINDS.by_kind(obj["apiVersion"], obj["kind"])
    if kind is None:
        return f"/apis/{obj['apiVersion']}/namespaces/default/widgets"
    inside = "/namespaces/default" if kind.namespaced else ""
    return f"{kind.root}{inside}/{kind.plural}"


def comparable(obj: Unstructured) -> Unstructured:
    """Without what is different for each object, or by choice."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _UNIQUE}
    finalizers = [finalizer for finalizer in metadata.pop("finalizers", []) if finalizer not in _NOT_OURS]
    made = {**obj, "metadata": {**metadata, "finalizers": finalizers}}
    if isinstance(made.get("spec"), dict) and obj["kind"] == "Pod":
        made["spec"] = {key: value for key, value in obj["spec"].items() if key not in _OURS_ALONE}
    if isinstance(made.get("status"), dict):
        made["status"] = {key: value for key, value in made["status"].items() if key != "lastPhaseTransitionTime"}
        for condition in made["status"].get("conditions") or ():
            condition.pop("lastTransitionTime", None)
    return made


@pytest.fixture
def real(control_plane: ControlPlane) -> Real:
    api = control_plane.api
    until(lambda: api.exists("/api/v1/namespaces/default/serviceaccounts/default"), what="the default account")
    return Real(api)


def test_schemas_are_those_of_the_pinned_release(control_plane: ControlPlane) -> None:
    stored = json.loads(Path(TARGET).read_text())
    document = made(control_plane.api, None)
    if document["source"] != stored["source"]:
        return  # another release was asked for; the file is about the pinned one
    for definition in stored["definitions"].values():
        for field in definition.get("properties", {}).values():
            field.pop("x-go", None)
    assert document["definitions"] == stored["definitions"]


def test_new_objects_are_filled_in_alike(real: Real) -> None:
    for obj in EVERYTHING:
        code, answer = real.create(obj)
        assert code == 201, f"{obj['kind']}: {answer.get('message')}"
        ours = Desk().create(obj, uid=answer["metadata"]["uid"])
        assert comparable(ours) == comparable(answer), f"{obj['kind']} {obj['metadata']['name']}"


def test_refusals_have_the_same_words(real: Real) -> None:
    different = []
    for obj in (*refusals.NAMESPACED, *refusals.CLUSTER_WIDE, *MORE):
        code, answer = real.create(obj)
        try:
            Hospitable().create(obj)
            ours: Unstructured = {}
        except ApiError as problem:
            ours = problem.status()
        theirs = answer if code >= 400 else {}
        if _words(ours) != _words(theirs):
            different.append((obj, _words(ours), _words(theirs)))
    assert not different


class Hospitable(Desk):
    """Every service account exists, as in a cluster that doesn't look for them."""

    def get(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        return {} if resource == "serviceaccounts" else super().get(resource, namespace, name)


def _words(status: Unstructured) -> Any:
    """Code, reason and what is wrong with which field, in any order; a message as it is where there is one cause."""
    details = status.get("details") or {}
    causes = sorted(json.dumps(cause, sort_keys=True) for cause in details.get("causes") or ())
    message = status.get("message") if len(causes) < 2 else ""
    about = {key: value for key, value in details.items() if key != "causes"}
    parts = json.dumps([status.get("code"), status.get("reason"), message, about, causes], sort_keys=True)
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", parts)


def test_what_is_fixed_stays_fixed(real: Real) -> None:
    desk = Desk()
    for step in sequences.FIXED:
        code, answer = real.step(step)
        ours = _carry_out(desk, step, answer)
        theirs = answer["message"] if code >= 400 else ""
        # The difference that is shown below a refused change is made from Go's names there.
        assert ours.partition("\n")[0] == theirs.partition("\n")[0], step


def _carry_out(desk: Desk, step: sequences.Step, answer: Unstructured) -> str:
    """Ours; the refusal's message, or empty."""
    try:
        if step.patch is None:
            desk.create(step.target, step.manager, uid=answer.get("metadata", {}).get("uid", ""))
        else:
            desk.patch(
                step.target,
                step.patch,
                step.content_type,
                step.manager,
                subresource=step.subresource,
                force=step.force,
            )
    except ApiError as problem:
        return problem.message
    return ""


def test_fields_are_owned_alike(real: Real) -> None:
    desk = Desk()
    for step in sequences.OWNERSHIP:
        code, answer = real.step(step)
        theirs = answer["message"] if code >= 400 else ""
        assert _carry_out(desk, step, answer) == theirs, step
        if code < 400:
            ours = desk.objects[desk._key(desk.kind_of(step.target), step.target)]
            assert _owners(ours) == _owners(answer), step
            for part in ("spec", "data"):
                assert ours.get(part) == answer.get(part), step
            for part in ("labels", "finalizers"):
                assert ours["metadata"].get(part) == answer["metadata"].get(part), step


def test_makers_own_what_they_made(real: Real) -> None:
    for obj in EVERYTHING:
        code, answer = real.create(obj, "dryRun=All&fieldManager=maker")
        assert code == 201, f"{obj['kind']}: {answer.get('message')}"
        ours = Desk().create(obj, "maker", uid=answer["metadata"]["uid"])
        assert _owners(ours) == _owners(answer), f"{obj['kind']} {obj['metadata']['name']}"


def _owners(obj: Unstructured) -> list[str]:
    """Who owns what, without times and without the controllers of the real cluster."""
    entries = obj["metadata"].get("managedFields") or ()
    kept = [
        {key: value for key, value in entry.items() if key not in ("time", "fieldsType")}
        for entry in entries
        if entry["manager"] != "kube-controller-manager"
    ]
    return sorted(json.dumps(item, sort_keys=True) for item in kept)


_AGES = {"Age", "Last Seen", "First Seen", "Duration", "Created At", "Last Schedule"}


def test_tables_have_the_same_cells(real: Real) -> None:
    desk = Desk()
    # What limits others comes last.
    for obj in sorted((*EVERYTHING, *STATES), key=lambda obj: obj["kind"] in ("LimitRange", "ResourceQuota")):
        path = f"{collection(obj)}/{obj['metadata']['name']}"
        code, answer = real.create(obj, "fieldManager=t")
        assert code == 201, f"{obj['kind']}: {answer.get('message')}"
        if obj.get("status"):
            code, answer = real.ask(
                "PATCH", f"{path}/status", {"status": obj["status"]}, "application/merge-patch+json"
            )
            assert code == 200, answer
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        _, table = real.ask("GET", f"{path}?includeObject=Object", accept=accept)
        ours = desk.machinery.table(desk.kind_of(obj), [table["rows"][0]["object"]], time.time())
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert [column["name"] for column in ours["columnDefinitions"]] == columns, obj["kind"]
        for name in ("type", "format", "priority"):
            assert [column[name] for column in ours["columnDefinitions"]] == [
                column[name] for column in table["columnDefinitions"]
            ], obj["kind"]
        assert _cells(ours, columns) == _cells(table, columns), obj


def _cells(table: Unstructured, columns: list[str]) -> list[Any]:
    cells = zip(columns, table["rows"][0]["cells"], strict=True)
    return [
        re.sub(r"\(.* ago\)", "(… ago)", str(cell)) if column not in _AGES else bool(cell) for column, cell in cells
    ]


def test_custom_kinds_behave_alike(real: Real) -> None:
    for bad in custom_samples.BAD_DEFINITIONS[:1] + custom_samples.BAD_DEFINITIONS[6:7]:
        _, answer = real.create(bad)
        with pytest.raises(ApiError) as refused:
            Desk().create(bad)
        assert refused.value.message == answer["message"]
    desk = Desk()
    definition = custom_samples.definition()
    code, _ = real.create(definition, "fieldManager=t")
    assert code == 201
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    until(lambda: _established(real.ask("GET", path)[1]), what="the custom kind is served")
    ours = desk.create(definition)
    assert _accepted(ours) == _accepted(real.ask("GET", path)[1])
    until(lambda: real.ask("GET", collection(custom_samples.widget()))[0] == 200, what="the kind's path")
    for obj in (*custom_samples.GOOD, *custom_samples.BAD):
        code, answer = real.create(obj)
        if code < 400:
            assert comparable(desk.create(obj)) == comparable(answer)
            continue
        with pytest.raises(ApiError) as refused:
            desk.create(obj)
        assert refused.value.code == code
        assert _causes(refused.value.details) == _causes(answer["details"]), obj


def _established(crd: Unstructured) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _accepted(crd: Unstructured) -> Any:
    status = crd["status"]
    conditions = [{**condition, "lastTransitionTime": ""} for condition in status["conditions"]]
    return status["acceptedNames"], status["storedVersions"], conditions


_ALSO_SAID = ("accessor error", "(default format)", "factor MultipleOf")
"""What the real server adds about the number that `scale` would read, and about numbers in general."""


def _causes(details: Unstructured | None) -> set[tuple[str, str]]:
    """What is wrong with which field, in any order."""
    causes = (details or {}).get("causes") or ()
    return {
        (cause["field"], cause["message"])
        for cause in causes
        if not any(words in cause["message"] for words in _ALSO_SAID)
    }
