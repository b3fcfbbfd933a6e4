"""Reads owners with their pod sets and pod templates: from the cache, and as the server has them.

`apply.owner_workloads` and `apply.workload_sizes` ask it. A TrainJob has no pod templates of its own: they are in the
JobSet of the same name that its controller makes, and that JobSet is read with it.
"""

from __future__ import annotations

from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.owners import pod_templates_of
from windlass.apply.workload_writer import WorkloadWriter
from windlass.model.codec import decode_object, object_id
from windlass.model.kueue import WorkloadObject
from windlass.model.owners import Owner, OwnerObject, owner_from_object
from windlass.model.owners.kubeflow import with_job_set
from windlass.model.owners.wire import TrainJobObject
from windlass.model.unstructured import Unstructured

JOB_SET = ("JobSet", "jobset.x-k8s.io")


class OwnerReader:
    def __init__(self, cache: ClusterCache, writer: WorkloadWriter) -> None:
        self._cache, self._writer = cache, writer

    def observed(self, obj: OwnerObject) -> Owner:
        """The owner as the watches have it; without pod sets as long as its JobSet does not exist."""
        return _described(obj, self._job_set_of(obj))

    def versions(self, obj: OwnerObject) -> tuple[str, ...]:
        """The resourceVersions of all that `observed` reads."""
        return tuple(found.metadata.resource_version for found in (obj, self._job_set_of(obj)) if found is not None)

    async def read(self, obj: OwnerObject) -> tuple[Unstructured, dict[str, Unstructured]] | None:
        """The object with all of its fields, and its pod templates; None if it or its JobSet is another one by now."""
        group, kind, key = object_id(obj)
        raw, job_set = await self._writer.get_raw(kind, group, key, obj.metadata.uid), self._job_set_of(obj)
        templates_from = raw
        if job_set is not None:
            templates_from = await self._writer.get_raw(*JOB_SET, key, job_set.metadata.uid)
        return None if raw is None or templates_from is None else (raw, pod_templates_of(templates_from))

    async def owner_of(self, workload: WorkloadObject) -> Owner | None:
        """The owner of the Workload as the server has it; None if there is none."""
        for reference in workload.metadata.owner_references:
            if reference.controller:
                group, key = reference.api_version.rpartition("/")[0], f"{workload.metadata.namespace}/{reference.name}"
                obj = await self._decoded(reference.kind, group, key, reference.uid)
                job_set = await self._decoded(*JOB_SET, key) if isinstance(obj, TrainJobObject) else None
                return _described(obj, job_set) if obj is not None else None
        return None

    async def _decoded(self, kind: str, group: str, key: str, uid: str = "") -> OwnerObject | None:
        raw = await self._writer.get_raw(kind, group, key, uid)
        found = decode_object(raw) if raw is not None else None
        return found if isinstance(found, OwnerObject) else None

    def _job_set_of(self, obj: OwnerObject) -> OwnerObject | None:
        kind, group = JOB_SET
        found: OwnerObject | None = self._cache.get(kind, obj.key, group) if isinstance(obj, TrainJobObject) else None
        return found


def _described(obj: OwnerObject, job_set: OwnerObject | None) -> Owner:
    owner = owner_from_object(obj)
    return (with_job_set(owner, owner_from_object(job_set)) if job_set is not None else None) or owner
