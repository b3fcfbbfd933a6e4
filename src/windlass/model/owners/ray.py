"""Reads RayClusters, RayJobs and RayServices. Called by `model.owners.normalise`.

Sizes and defaults are those of KubeRay: without `replicas`, a group has `minReplicas` workers; a RayJob has a pod that
submits it, unless its mode says otherwise.
"""

from __future__ import annotations

import msgspec

from windlass.model.kueue.workload_wire import PodTemplate
from windlass.model.owners.owner import Owner, OwnerPodSet, checked_count, checked_template, distinct_sets
from windlass.model.owners.wire import (
    RayClusterObject,
    RayClusterSpec,
    RayJobObject,
    RayServiceObject,
    RayWorkerGroup,
)
from windlass.model.pod import Container, PodSpec, ResourceRequirements

GROUP_LABEL = "ray.io/group"
SUBMITTER = "submitter"
SUBMITS_BY_POD = "K8sJobMode"
_SUBMITTER_RESOURCES = ResourceRequirements(
    limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "500m", "memory": "200Mi"}
)
_AUTOSCALER_RESOURCES = ResourceRequirements(
    limits={"cpu": "500m", "memory": "512Mi"}, requests={"cpu": "500m", "memory": "512Mi"}
)


def read_ray_cluster(wire: RayClusterObject) -> Owner:
    sets = _ray_sets(wire.spec, "spec")
    return Owner(wire.KIND, wire.metadata, sets, suspended=wire.spec.suspend, pod_set_label=GROUP_LABEL)


def read_ray_service(wire: RayServiceObject) -> Owner:
    """It makes a RayCluster, and a second one beside it for an upgrade."""
    sets = _ray_sets(wire.spec.ray_cluster_config, "spec.rayClusterConfig")
    return Owner(wire.KIND, wire.metadata, sets, pod_set_label=GROUP_LABEL, makes_owners=True)


def read_ray_job(wire: RayJobObject) -> Owner:
    spec = wire.spec
    sets: tuple[OwnerPodSet, ...] = ()
    if not spec.cluster_selector:  # else it runs in a cluster that exists
        sets = _ray_sets(spec.ray_cluster_spec, "spec.rayClusterSpec")
    if spec.submission_mode in ("", SUBMITS_BY_POD):
        sets = (*sets, OwnerPodSet(SUBMITTER, 1, _submitter_template(wire)))
    return Owner(
        wire.KIND,
        wire.metadata,
        sets,
        suspended=spec.suspend,
        deadline=spec.active_deadline_seconds,
        pod_set_label=GROUP_LABEL,
    )


def _submitter_template(wire: RayJobObject) -> PodTemplate:
    given = wire.spec.submitter_pod_template
    if given is not None:
        return checked_template(given, "spec.submitterPodTemplate")
    head = wire.spec.ray_cluster_spec.head_group_spec.template.spec
    image = head.containers[0].image if head.containers else ""
    container = Container(name="ray-job-submitter", image=image, resources=_SUBMITTER_RESOURCES)
    return PodTemplate(spec=PodSpec(containers=(container,), scheduler_name=head.scheduler_name))


def _ray_sets(spec: RayClusterSpec, path: str) -> tuple[OwnerPodSet, ...]:
    head = checked_template(spec.head_group_spec.template, f"{path}.headGroupSpec.template")
    sets = [OwnerPodSet("headgroup", 1, _with_autoscaler(head, spec))]
    for index, group in enumerate(spec.worker_group_specs):
        where = f"{path}.workerGroupSpecs[{index}]"
        hosts = checked_count(group.num_of_hosts, f"{where}.numOfHosts")
        count = checked_count(_workers(group, where) * hosts, f"{where}.replicas")
        sets.append(OwnerPodSet(group.group_name, count, checked_template(group.template, f"{where}.template")))
    return distinct_sets(sets, f"{path}.workerGroupSpecs")


def _workers(group: RayWorkerGroup, path: str) -> int:
    """As KubeRay counts them: within `minReplicas` and `maxReplicas`, and none of a group that is suspended."""
    if group.suspend:
        return 0
    least = checked_count(group.min_replicas, f"{path}.minReplicas")
    asked = least if group.replicas is None else checked_count(group.replicas, f"{path}.replicas")
    wanted = max(asked, least)
    return wanted if group.max_replicas is None else min(wanted, max(least, group.max_replicas))


def _with_autoscaler(head: PodTemplate, spec: RayClusterSpec) -> PodTemplate:
    """KubeRay adds the autoscaler to the head's pod."""
    if not spec.enable_in_tree_autoscaling:
        return head
    given = spec.autoscaler_options.resources if spec.autoscaler_options is not None else None
    container = Container(name="autoscaler", resources=given or _AUTOSCALER_RESOURCES)
    containers = (*head.spec.containers, container)
    return PodTemplate(metadata=head.metadata, spec=msgspec.structs.replace(head.spec, containers=containers))
