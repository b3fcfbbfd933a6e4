"""Rules about quotas: ResourceQuotas of the namespace, nominal quotas of ClusterQueues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.check.pod_counts import least_requests, total_requests
from windlass.diagnose.check.queues import cluster_queue_of
from windlass.diagnose.check.requests import pod_and_requests
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.quotas import is_ineffective_key
from windlass.diagnose.unstructured import nested_map
from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.quota import MILLI_PER_GPU, format_quota
from windlass.model.requests import format_amount, parse_amount
from windlass.model.shared_queues.quota_tree import UNLIMITED
from windlass.queueing.quota_node import FlavorResource, QuotaNode

COMPUTE = ("cpu", "memory")


@rule("resource-quota-admits", ERROR, "The namespace's ResourceQuota is large enough")
def resource_quota_admits(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    if not manifest.pods:
        return
    for name, hard, used in _quotas(manifest.namespace, context):
        yield from _one_pod(manifest, name, hard)
        yield from _all_pods(manifest, name, hard, used)


def _quotas(namespace: str, context: CheckContext) -> Iterator[tuple[str, dict[str, object], dict[str, object]]]:
    """(name, hard, used) of the namespace's quotas, in the manifests and in the cluster."""
    submitted = [quota for quota in context.of_kind("ResourceQuota") if quota.namespace == namespace]
    for quota in submitted:
        yield quota.name, nested_map(quota.data, "spec", "hard"), {}
    if context.evidence is None:
        return
    for item in context.evidence.of_kind("ResourceQuota"):
        if item.namespace == namespace and item.name not in {quota.name for quota in submitted}:
            yield (item.name, nested_map(item.data, "spec", "hard"), nested_map(item.data, "status", "used"))


def _one_pod(manifest: Manifest, quota: str, hard: Mapping[str, object]) -> Iterator[RuleFinding]:
    """CPU and memory must be requested by every pod if a quota limits them."""
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None:
            continue
        for key in hard:
            name = key.removeprefix("requests.")
            if name in COMPUTE and name not in read[1]:
                yield RuleFinding(
                    f"requests no {name}, which the ResourceQuota {quota} demands of every pod, so it is refused",
                    view.field_path("spec"),
                    f"request {name}, or have a LimitRange fill it in",
                )


def _all_pods(
    manifest: Manifest, quota: str, hard: Mapping[str, object], used: Mapping[str, object]
) -> Iterator[RuleFinding]:
    total = total_requests(manifest)
    for key, limit in hard.items():
        name = key.removeprefix("requests.")
        if is_ineffective_key(key) or name not in total:
            continue
        try:
            top, taken = parse_amount(name, str(limit)), parse_amount(name, str(used.get(key, 0)))
        except InputError:
            continue
        if taken + total[name] <= top:
            continue
        amounts = [format_amount(name, amount) for amount in (total[name], taken, top)]
        ever = total[name] > top
        yield RuleFinding(
            f"requests {amounts[0]} {name} in total, but the ResourceQuota {quota} allows {amounts[2]}"
            f"{'' if ever else f', of which {amounts[1]} are used'}",
            "metadata.namespace",
            "ask for less, or have the quota raised",
            ERROR if ever else WARNING,
        )


@rule("queue-admits", ERROR, "The queue can admit it: its quota is large enough")
def queue_admits(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    found = cluster_queue_of(manifest, context)
    if found is None:
        return
    name, _, path = found
    node = context.quota_tree.queues.get(name)
    if node is None:
        return
    requested = least_requests(manifest)
    for group in node.spec.resource_groups:
        for resource in group.resources:
            cells = [(quotas.flavor, resource) for quotas in group.flavors]
            limit = max((_most(node, cell, context) for cell in cells), default=0)
            asked = requested.get(resource, 0) * (MILLI_PER_GPU if resource == GPU_RESOURCE else 1)
            if asked > limit:
                total, most = format_quota(resource, asked), format_quota(resource, limit)
                yield RuleFinding(
                    f"requests {total} {resource} in total, but ClusterQueue {name} admits at most {most}",
                    path,
                    "ask for less, or have the quota raised",
                )


def _most(node: QuotaNode, cell: FlavorResource, context: CheckContext) -> int:
    """The most of a flavor that one workload can get with borrowing, as the engine's quota has it. Without a cluster,
    the rest of a cohort may be somewhere else, and then only the queue's own limit counts."""
    alone = len(list(node.root.subtree_queues())) < 2
    if node.parent is None or context.evidence is not None or not alone:
        return node.potential_available(cell)
    quota = node.quota(cell)
    return UNLIMITED if quota.borrowing_limit is None else quota.nominal + quota.borrowing_limit
