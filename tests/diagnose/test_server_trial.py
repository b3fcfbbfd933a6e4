"""Patches tried on an API server: what it refuses is not printed, and what it can't say does not change the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from tests.diagnose.objects import GPU, GPU_TAINT, NOW, evidence, node, pod, thing
from tests.kube.fake_server import FakeServer, refusal

from windlass.cli import why_text
from windlass.cli.why import diagnosis_document
from windlass.cli.why_patch import print_patch
from windlass.diagnose import server_trial
from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.server_trial import tried_on_server
from windlass.diagnose.why import why, with_proposals
from windlass.kube.client import KubeClient
from windlass.model.unstructured import Unstructured

pytestmark = pytest.mark.anyio
T4, A100, L4 = ({"nvidia.com/gpu.product": product} for product in ("Tesla-T4", "A100", "L4"))
POLICY = "ValidatingAdmissionPolicy 'gpus' with binding 'gpus' denied request: "
Answer = Callable[[web.Request], web.StreamResponse | None]


def template(spec: Unstructured) -> Unstructured:
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}], **spec}}


def deployment(kind: str = "Deployment", version: str = "apps/v1") -> list[Unstructured]:
    """A pod of a Deployment that wants a T4; there are two A100 and an L4."""
    wants = {"nodeSelector": T4}
    owner = thing(kind, "web", {"template": template(wants)}, version)
    asked = pod("asked", 1, spec=wants, owner=(kind, "web"))
    return [node("g1", 1, labels=A100), node("g2", 1, labels=L4), owner, asked]


def tainted_pod() -> list[Unstructured]:
    return [node("g1", 1, taints=[GPU_TAINT]), pod("asked", 1)]


RESOURCES = {
    "/apis/apps/v1": [("deployments", "Deployment")],
    "/api/v1": [("pods/status", "Pod"), ("pods", "Pod")],
    "/apis/kubeflow.org/v1": [("pytorchjobs", "PyTorchJob")],
}


def kinds(request: web.Request) -> web.StreamResponse | None:
    rows = RESOURCES.get(request.path)
    if rows is None:
        return None
    return web.json_response({"resources": [{"name": n, "kind": k, "namespaced": True} for n, k in rows]})


def takes(request: web.Request) -> web.StreamResponse | None:
    """Any write that is a dry run: the object that it would store is another one."""
    assert request.query.get("dryRun") == "All", "nothing may be stored"
    return web.json_response({"spec": {"changed": True}, "metadata": {"labels": {"changed": "yes"}}})


def writes(*answers: Answer) -> Answer:
    """The first answer to a PATCH or POST; what is left counts as taken."""

    def answer(request: web.Request) -> web.StreamResponse | None:
        if request.method not in ("PATCH", "POST"):
            return None
        return next((made for one in answers if (made := one(request)) is not None), None) or takes(request)

    return answer


def on(method: str, code: int, message: str, reason: str = "") -> Answer:
    return lambda request: (
        refusal(code, message, reason) if request.method == method and "accessreviews" not in request.path else None
    )


def review(allowed: bool) -> Answer:
    """What the server says of the caller's rights."""
    return lambda request: (
        web.json_response({"status": {"allowed": allowed}}) if "accessreviews" in request.path else None
    )


async def ask(objects: list[Unstructured], *answers: Answer) -> tuple[Diagnosis, list[tuple[str, str]]]:
    """The answer, and what was asked of the server."""
    server = await FakeServer().start()
    server.faults += [kinds, writes(*answers)]
    try:
        async with KubeClient(server.access) as client:
            known = evidence(objects, {})
            found = await tried_on_server(client, known, with_proposals(known, "pod/asked", "", NOW))
            return found, [(method, path) for method, path, _ in server.requests]
    finally:
        await server.stop()


def page(found: Diagnosis) -> str:
    text: str = " ".join(why_text.diagnosis_text(found, wide=True).split())
    return text


async def test_what_the_server_takes_is_said_as_before() -> None:
    found, requests = await ask(deployment())
    plain = why(evidence(deployment(), {}), "pod/asked", "", NOW)
    assert [patch.patch for patch in found.patches] == [patch.patch for patch in plain.patches]
    assert {patch.dry_run.result for patch in found.patches if patch.dry_run} == {"accepted"}
    assert all(patch.manifest is None for patch in found.patches)
    assert page(found) == page(plain)
    assert sorted({method for method, _ in requests}) == ["GET", "PATCH"]


async def test_what_a_policy_refuses_makes_room_for_another_patch() -> None:
    first = why(evidence(deployment(), {}), "pod/asked", "", NOW).patches[0]
    refused_once: list[str] = []

    def refuse_first(request: web.Request) -> web.StreamResponse | None:
        if refused_once:
            return None
        refused_once.append(request.path)
        return refusal(422, f'deployments.apps "web" is forbidden: {POLICY}only T4', "Invalid")

    found, _ = await ask(deployment(), refuse_first)
    assert found.patches[0].what != first.what
    assert [patch.what for patch in found.refused_patches] == [first.what]
    assert found.refused_patches[0].manifest is None, "a policy is not evaded by creating the object anew"
    assert "only T4" in page(found)
    assert diagnosis_document(found)["refusedPatches"][0]["dryRun"]["result"] == "refused"


async def test_where_all_are_refused_the_text_says_that_none_can_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = await ask(deployment(), on("PATCH", 403, f"forbidden: {POLICY}frozen", "Forbidden"), review(True))
    assert found.code == "SELECTOR_MISMATCH"
    assert not found.patches
    assert "Refused by the API server" in page(found)
    assert "frozen" in page(found)
    print_patch(found)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No patch of Pod team/asked can be applied" in captured.err
    assert "frozen" in captured.err


async def test_a_field_that_only_this_server_holds_fixed_is_created_again(capsys: pytest.CaptureFixture[str]) -> None:
    objects = deployment("PyTorchJob", "kubeflow.org/v1")
    assert why(evidence(objects, {}), "pod/asked", "", NOW).patches[0].accepted, "our own rules would take it"
    fixed = 'PyTorchJob.kubeflow.org "web" is invalid: spec: Invalid value: "object": the spec is immutable'
    found, _ = await ask(
        objects, on("PATCH", 422, fixed, "Invalid"), on("POST", 409, "already exists", "AlreadyExists")
    )
    best = found.patches[0]
    assert (best.accepted, best.runs_after) == (False, True)
    assert best.manifest["kind"] == "PyTorchJob"
    assert "to be deleted and created again" in page(found)
    print_patch(found)
    captured = capsys.readouterr()
    assert "the spec is immutable" in captured.err
    assert "kubectl replace --force -n team -f FILE" in captured.err
    assert "kind: PyTorchJob" in captured.out


async def test_a_manifest_that_the_server_refuses_is_not_printed() -> None:
    objects = [node("g1", 1, labels=A100), pod("asked", 1, spec={"nodeSelector": T4})]
    found, _ = await ask(
        objects,
        on("PATCH", 422, "Pod is invalid: spec: Forbidden: pod updates may not change fields", "Invalid"),
        on("POST", 403, 'admission webhook "sizes" denied the request: A100 are not for team', "Forbidden"),
        review(True),
    )
    assert not found.patches
    assert "A100 are not for team" in page(found)


async def test_without_the_right_to_patch_it_says_so_and_the_patch_stays() -> None:
    words = 'deployments.apps "web" is forbidden: User "ann" cannot patch resource "deployments" in API group "apps"'
    found, requests = await ask(deployment(), on("PATCH", 403, words, "Forbidden"), review(False))
    plain = why(evidence(deployment(), {}), "pod/asked", "", NOW)
    assert (found.code, found.confidence, found.headline) == (plain.code, plain.confidence, plain.headline)
    assert [patch.patch for patch in found.patches] == [patch.patch for patch in plain.patches]
    assert page(found).count("not tried on the API server: you may not patch deployments in namespace team") == 1
    assert not found.refused_patches
    assert ("POST", server_trial.REVIEWS) in requests


@pytest.mark.parametrize(
    ("answer", "why_not"),
    [
        (
            on("PATCH", 400, 'admission webhook "old" does not support dry run', "BadRequest"),
            "does not support dry run",
        ),
        (on("PATCH", 500, 'failed calling webhook "down": connection refused', "InternalError"), "failed calling"),
        (on("PATCH", 404, 'deployments.apps "web" not found', "NotFound"), "Deployment web is gone"),
        (on("PATCH", 429, "too many requests"), "too many requests"),
    ],
)
async def test_what_the_server_can_not_say_is_no_refusal(answer: Answer, why_not: str) -> None:
    found, _ = await ask(deployment(), answer)
    assert found.patches
    assert not found.refused_patches
    assert why_not in page(found)


async def test_a_change_that_a_webhook_takes_back_is_not_printed() -> None:
    objects = tainted_pod()
    found, _ = await ask(objects, lambda request: web.json_response(objects[-1]))
    assert not found.patches
    assert "leaves the object as it was" in page(found)


async def test_a_quota_that_counts_the_old_object_is_no_refusal_of_the_new_one() -> None:
    objects = [node("g1", 1, labels=A100), pod("asked", 1, spec={"nodeSelector": T4})]
    found, _ = await ask(
        objects,
        on("PATCH", 422, "Pod is invalid: spec: Forbidden: pod updates may not change fields", "Invalid"),
        on("POST", 403, 'pods "asked" is forbidden: exceeded quota: gpus', "Forbidden"),
    )
    assert [patch.accepted for patch in found.patches] == [False]
    assert "exceeded quota" in page(found)


async def test_a_server_that_says_nothing_costs_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_trial, "SECONDS", 0.05)
    silent = asyncio.Event()

    async def never(self: FakeServer, request: web.Request) -> web.StreamResponse:
        await silent.wait()
        return web.Response()

    monkeypatch.setattr(FakeServer, "_serve", never)
    server = await FakeServer().start()
    try:
        async with KubeClient(server.access) as client:
            known = evidence(tainted_pod(), {})
            found = await tried_on_server(client, known, with_proposals(known, "pod/asked", "", NOW))
    finally:
        silent.set()
        await server.stop()
    assert found.patches
    assert "has not answered" in page(found)


async def test_the_requests_are_few_however_many_nodes_there_are() -> None:
    products = [node(f"g{number}", 1, labels={"nvidia.com/gpu.product": f"P{number}"}) for number in range(40)]
    found, requests = await ask(
        [*products, *deployment()[2:]], on("PATCH", 403, "denied the request", "Forbidden"), review(True)
    )
    assert len(found.refused_patches) == 3
    assert len(requests) <= 13, "six patches, six questions about rights, one about the kind"
