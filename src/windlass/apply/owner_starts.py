"""Starts the owners of admitted Workloads and stops those of evicted ones: unsuspends and suspends them, with what
admission changes in their pod templates.

`apply.admission` and `apply.owner_workloads` call it, after the Workload's status is written. A Job's template can be
changed only while it is suspended and has no start time. Hence a Job is stopped in three steps, as Kueue does it, with
a mark that says that the last one is missing: a run that finds the mark begins again.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.owner_templates import FlavorsBySet, merge_difference, started_owner, stopped_owner
from windlass.apply.owners import SUSPEND_FIELDS
from windlass.apply.workload_writer import WorkloadWriter
from windlass.kube.request import MERGE_PATCH, Request
from windlass.kube.resources import KUEUE_API_GROUP, Resource
from windlass.kube.write_requests import patch_status
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import ResourceFlavorObject, ResourceFlavorSpec
from windlass.model.meta import OwnerReference
from windlass.model.names.kueue import STOPPING_ANNOTATION
from windlass.model.owners import OwnerObject
from windlass.model.unstructured import Unstructured


class OwnerStarter:
    def __init__(self, cache: ClusterCache, writer: WorkloadWriter) -> None:
        self._cache, self._writer = cache, writer

    async def start(self, workload: WorkloadObject) -> None:
        """Unsuspends the owner of an admitted Workload."""
        found = self._owner_of(workload)
        if found is None:
            return
        resource, key, reference = found
        flavors = self.flavors_of(workload)
        if not self._changes_more_than_suspend(workload, resource, key, flavors):
            await self._writer.suspend_owner(workload, False)
            return
        raw = await self._writer.get_raw(resource.kind, resource.group, key, reference.uid)
        if raw is not None:
            await self._patch(resource, key, raw, started_owner(raw, workload, flavors))

    async def stop(self, workload: WorkloadObject) -> None:
        """Suspends the owner of an evicted Workload, and restores its pod templates from the Workload."""
        found = self._owner_of(workload)
        if found is None:
            return
        resource, key, reference = found
        raw = await self._writer.get_raw(resource.kind, resource.group, key, reference.uid)
        known = await self._writer.get_raw("Workload", KUEUE_API_GROUP, workload.key, workload.metadata.uid)
        if raw is None or known is None:
            return
        stopped = stopped_owner(raw, known)
        if resource.kind == "Job" and merge_difference(raw, stopped) not in ({}, {"spec": {"suspend": True}}):
            await self._stop_job(resource, key, raw, stopped)
        else:
            await self._patch(resource, key, raw, stopped)

    async def _stop_job(self, resource: Resource, key: str, raw: Unstructured, stopped: Unstructured) -> None:
        uid = raw["metadata"]["uid"]
        mark = {"metadata": {"uid": uid, "annotations": {STOPPING_ANNOTATION: "true"}}, "spec": {"suspend": True}}
        await self._writer.send(Request("PATCH", resource.path(key), body=mark, content_type=MERGE_PATCH))
        await self._writer.send(patch_status(resource, key, {"startTime": None}))
        patch = {"spec": merge_difference(raw["spec"], stopped["spec"])}
        patch["metadata"] = {"uid": uid, "annotations": {STOPPING_ANNOTATION: None}}
        await self._writer.send(Request("PATCH", resource.path(key), body=patch, content_type=MERGE_PATCH))

    async def _patch(self, resource: Resource, key: str, before: Unstructured, after: Unstructured) -> None:
        """Only if the owner is still as it was read: lists in its spec are replaced whole."""
        difference = merge_difference(before, after)
        if difference:
            version = {"resourceVersion": before["metadata"]["resourceVersion"]}
            body = {**difference, "metadata": {**difference.get("metadata", {}), **version}}
            await self._writer.send(Request("PATCH", resource.path(key), body=body, content_type=MERGE_PATCH))

    def _owner_of(self, workload: WorkloadObject) -> tuple[Resource, str, OwnerReference] | None:
        for owner in workload.metadata.owner_references:
            resource = self._writer.resource_for(owner.kind, owner.api_version.rpartition("/")[0])
            if owner.controller and owner.kind in SUSPEND_FIELDS and resource is not None:
                return resource, f"{workload.metadata.namespace}/{owner.name}", owner
        return None

    def flavors_of(self, workload: WorkloadObject) -> FlavorsBySet:
        """The flavors of its admission that change pods."""
        admission = workload.status.admission
        return {
            part.name: self.flavor_specs(part.flavors.values())
            for part in (admission.pod_set_assignments if admission is not None else ())
        }

    def flavor_specs(self, names: Iterable[str]) -> list[ResourceFlavorSpec]:
        """Those that have node labels or tolerations, each once."""
        found: list[ResourceFlavorObject | None] = [
            self._cache.get("ResourceFlavor", name, KUEUE_API_GROUP) for name in dict.fromkeys(names)
        ]
        specs = [flavor.spec for flavor in found if flavor is not None]
        return [spec for spec in specs if spec.node_labels or spec.tolerations]

    def _changes_more_than_suspend(
        self, workload: WorkloadObject, resource: Resource, key: str, flavors: FlavorsBySet
    ) -> bool:
        owner: OwnerObject | None = self._cache.get(resource.kind, key, resource.group)
        is_stopping = owner is not None and STOPPING_ANNOTATION in owner.metadata.annotations
        is_partial = any(pod_set.min_count is not None for pod_set in workload.spec.pod_sets)
        return is_stopping or is_partial or any(flavors.values())
