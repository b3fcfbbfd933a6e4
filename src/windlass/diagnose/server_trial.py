"""Tries the patches of an answer on the API server, as dry runs under the rights of whoever asks.

`cli.why` calls `tried_on_server` where there is a cluster. A dry run goes through authorisation, admission and
validation as the real request would, and stores nothing. What the server refuses is not proposed: the next proposal
takes its place, or the object with the change, to be created anew. Where the caller may not patch, or the server does
not say, the patch stays as our own copy of the rules judges it (`immutability`), and the answer says why.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import ACCEPTED, REFUSED, UNTRIED, Diagnosis, DryRun, Patch, PatchTarget
from windlass.diagnose.patches import shown
from windlass.diagnose.unstructured import nested_map
from windlass.kube.client import KubeClient
from windlass.kube.discovery import find_resource
from windlass.kube.errors import ApiError, Forbidden, NotFound
from windlass.kube.request import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request, dry_run
from windlass.kube.resources import Resource
from windlass.model.errors import ClusterUnreachable

SECONDS = 10.0
"""Longest time that all trials of an answer take together; an admission webhook may take ten seconds."""
MOST_WORDS = 300
"""Characters of a refusal that are shown: the server repeats the whole object."""
CONTENT_TYPES = {"json": JSON_PATCH, "merge": MERGE_PATCH, "strategic": STRATEGIC_PATCH}
REFUSALS = (400, 403, 413, 415, 422)
DENIED = re.compile(r"denied the request|denied request")
"""What an admission webhook or policy says, with any status."""
FIXED = re.compile(
    r"immutable|(?:may not|can ?not|can't|must not) (?:be )?(?:change|modif|update)|updates? .*forbidden"
)
"""What it says where the object may be what is asked for, and only may not become so."""
NO_RIGHT = re.compile(r"\bcannot (?:patch|create) resource\b")
UNDECIDED = re.compile(r"does not support dry run|exceeded quota|failed calling webhook")
"""What says nothing about the real request: the quota still counts the object that is to be deleted."""
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def tried_on_server(client: KubeClient, evidence: Evidence, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with the patches that the server takes, and those that it refuses apart."""
    trial = _Trial(client, evidence, asyncio.get_running_loop().time() + SECONDS)
    tried = await asyncio.gather(*map(trial.tried, diagnosis.patches))
    refused = tuple(patch for patch in tried if patch.dry_run is not None and patch.dry_run.result == REFUSED)
    kept = [patch for patch in tried if patch not in refused]
    refused = tuple(msgspec.structs.replace(patch, manifest=None) for patch in refused)
    return msgspec.structs.replace(diagnosis, patches=shown(kept), refused_patches=shown(refused))


class _Trial:
    def __init__(self, client: KubeClient, evidence: Evidence, deadline: float) -> None:
        self._client, self._evidence, self._deadline = client, evidence, deadline
        self._found: dict[tuple[str, str], Resource | None] = {}
        self._finding = asyncio.Lock()

    async def tried(self, patch: Patch) -> Patch:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._judged(patch)
        except TimeoutError:
            why = f"the API server has not answered within {SECONDS:.0f} seconds"
        except ClusterUnreachable as error:
            why = _shortened(str(error))
        return msgspec.structs.replace(patch, dry_run=DryRun(UNTRIED, why))

    async def _judged(self, patch: Patch) -> Patch:
        target = patch.target
        resource = await self._resource(target.api_version, target.kind)
        if resource is None:
            raise ClusterUnreachable(f"the API server has no kind {target.kind} in {target.api_version}")
        key = f"{target.namespace}/{target.name}"
        body, content_type = patch.patch, CONTENT_TYPES[patch.type]
        change = Request("PATCH", resource.path(key), (), body, content_type, retries_on_429=False)
        said, answer = await self._outcome(change, resource, "patch", target)
        if said.result == ACCEPTED and not self._has_effect(patch, answer):
            undone = "the server takes it and leaves the object as it was (an admission webhook?)"
            return msgspec.structs.replace(patch, dry_run=DryRun(REFUSED, undone))
        if said.result == ACCEPTED:
            return msgspec.structs.replace(patch, accepted=True, refused=(), dry_run=said)
        is_fixed = bool(patch.refused) or not DENIED.search(said.message) or FIXED.search(said.message)
        if said.result == UNTRIED or patch.manifest is None or not is_fixed:
            return msgspec.structs.replace(patch, dry_run=said)
        collection = resource.namespace_collection(target.namespace)
        anew = Request("POST", collection, body=patch.manifest, retries_on_429=False)
        created, _ = await self._outcome(anew, resource, "create", target)
        if created.result == ACCEPTED:
            created = DryRun(ACCEPTED, said.message)
        return msgspec.structs.replace(patch, accepted=False, dry_run=created)

    async def _resource(self, api_version: str, kind: str) -> Resource | None:
        """Asked once for all patches of a kind."""
        key = (api_version, kind)
        async with self._finding:
            if key not in self._found:
                self._found[key] = await find_resource(self._client, api_version, kind)
        return self._found[key]

    async def _outcome(
        self, request: Request, resource: Resource, verb: str, target: PatchTarget
    ) -> tuple[DryRun, dict[str, Any]]:
        """What the server says, and the object that it would store."""
        try:
            return DryRun(ACCEPTED), await self._client.read(dry_run(request), dict[str, Any])
        except ApiError as error:
            words = error.status.message or error.status.reason
            if verb == "create" and error.status.reason == "AlreadyExists":
                return DryRun(ACCEPTED), {}  # it is looked for last, behind admission and validation
            if UNDECIDED.search(words):
                return DryRun(UNTRIED, _shortened(words)), {}
            if isinstance(error, Forbidden) and await self._lacks_right(words, resource, verb, target):
                where = f" in namespace {target.namespace}" if resource.namespaced else ""
                return DryRun(UNTRIED, f"you may not {verb} {resource.plural}{where}"), {}
            if error.code in REFUSALS or DENIED.search(words):
                return DryRun(REFUSED, _shortened(words)), {}
            gone = f"{target.kind} {target.name} is gone" if isinstance(error, NotFound) else ""
            return DryRun(UNTRIED, gone or _shortened(words)), {}

    async def _lacks_right(self, words: str, resource: Resource, verb: str, target: PatchTarget) -> bool:
        """Whether authorisation has refused, not admission: both answer 403."""
        asked = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": target.namespace}
        asked |= {"name": target.name} if verb != "create" else {}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        request = Request("POST", REVIEWS, body={**body, "spec": {"resourceAttributes": asked}}, retries_on_429=False)
        try:
            review = await self._client.read(request, dict[str, Any])
        except ApiError:
            return NO_RIGHT.search(words) is not None
        return nested_map(review, "status").get("allowed") is not True

    def _has_effect(self, patch: Patch, answer: dict[str, Any]) -> bool:
        """Whether the object that the server would store differs from the present one where the patch changes it."""
        target = patch.target
        item = self._evidence.get(target.kind, target.namespace, target.name)
        if item is None or not isinstance(patch.patch, dict):
            return True
        return any(_wanted(item.data, field) != _wanted(answer, field) for field in patch.patch)


def _wanted(data: dict[str, Any], field: str) -> Any:
    """The part of an object that people write."""
    if field != "metadata":
        return data.get(field)
    return {part: nested_map(data, field, part) for part in ("labels", "annotations")}


def _shortened(words: str) -> str:
    text = " ".join(words.split())
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]} …"
