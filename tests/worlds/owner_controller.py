"""Plays the controllers of PyTorchJobs, JobSets and RayClusters: what is not suspended has its pods, what is has none.

Their projects' own controllers are not here, only their kinds. `play` calls `sync` after every change of an owner or of
its pods, and now and then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Play

RESOURCES = {
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "JobSet": "jobsets.jobset.x-k8s.io",
    "RayCluster": "rayclusters.ray.io",
}


class OwnerController:
    def __init__(self, play: Play) -> None:
        self._play = play

    async def sync(self) -> None:
        owners = [(resource, owner) for resource in RESOURCES.values() for owner in await self._play.list(resource)]
        if not owners:
            return
        pods: dict[str, dict[str, Unstructured]] = defaultdict(dict)
        for pod in await self._play.list("pods"):
            for reference in pod["metadata"].get("ownerReferences", ()):
                pods[reference["uid"]][pod["metadata"]["name"]] = pod
        for resource, owner in owners:
            await self._sync(resource, owner, pods[owner["metadata"]["uid"]])

    async def _sync(self, resource: str, owner: Unstructured, there: dict[str, Unstructured]) -> None:
        if "deletionTimestamp" in owner["metadata"] or _has_ended(owner):
            return
        wanted = dict(_pods(owner))
        if _is_suspended(owner):
            for pod in there.values():
                if (
                    pod["status"].get("phase") not in ("Succeeded", "Failed")
                    and "deletionTimestamp" not in pod["metadata"]
                ):
                    await self._play.delete("pods", pod)
            return
        for name, pod in wanted.items():
            if name not in there:
                await self._play.create(pod)
            elif there[name]["status"].get("phase") == "Failed":
                await self._play.delete("pods", there[name])
        done = [name for name in wanted if there.get(name, {}).get("status", {}).get("phase") == "Succeeded"]
        if wanted and len(done) == len(wanted):
            kind = "Completed" if owner["kind"] == "JobSet" else "Succeeded"
            status = {
                "conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": owner["metadata"]["creationTimestamp"]}
                ]
            }
            await self._play.patch(resource, owner, {"status": status})


def _has_ended(owner: Unstructured) -> bool:
    return bool((owner.get("status") or {}).get("conditions"))


def _is_suspended(owner: Unstructured) -> bool:
    spec = owner["spec"]
    return bool(spec["runPolicy"]["suspend"] if owner["kind"] == "PyTorchJob" else spec.get("suspend"))


def _pods(owner: Unstructured) -> Iterator[tuple[str, Unstructured]]:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    for role, count, template, labels in _roles(owner):
        for number in range(count):
            name = f"{meta['name']}-{role}-{number}"
            inner = template.get("metadata") or {}
            made = {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {**(inner.get("labels") or {}), **labels},
                "annotations": dict(inner.get("annotations") or {}),
                "ownerReferences": [{**reference, "controller": True}],
            }
            yield name, {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


def _roles(owner: Unstructured) -> Iterator[tuple[str, int, Unstructured, dict[str, str]]]:
    spec = owner["spec"]
    if owner["kind"] == "PyTorchJob":
        for role, part in spec["pytorchReplicaSpecs"].items():
            yield role.lower(), part["replicas"], part["template"], {"training.kubeflow.org/replica-type": role.lower()}
    elif owner["kind"] == "JobSet":
        for job in spec["replicatedJobs"]:
            inner = job["template"]["spec"]
            labels = {"jobset.sigs.k8s.io/replicatedjob-name": job["name"]}
            yield job["name"], inner["parallelism"], inner["template"], labels
    else:
        yield "head", 1, spec["headGroupSpec"]["template"], {"ray.io/group": "headgroup"}
        for group in spec["workerGroupSpecs"]:
            yield group["groupName"], group["replicas"], group["template"], {"ray.io/group": group["groupName"]}
