"""The invariants of a world, computed again from the objects alone, in a slow and simple way.

Nothing here is shared with the code under test: requests are read from the trees, quota is added up from the
definitions (a child shows its parent only what is above the part that it never lends). Only which MIG instances a GPU
can hold together is looked up, in tables that have their own tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from tests.invariants.objects import DEVICES, FRACTION, GPU, H100, MIG, OWNER, PODSET, POOL, UNHEALTHY
from tests.sharing.layouts import is_legal_layout

from windlass.model.unstructured import Unstructured

Cell = tuple[str, str]
"""(flavor, resource)."""
Usage = dict[str, Counter[Cell]]
"""By ClusterQueue; CPUs in thousandths, GPUs in thousandths."""


def asked(pod: Unstructured) -> Counter[str]:
    """CPUs and GPUs that a pod asks for, in thousandths."""
    amounts: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for name, amount in container["resources"].get("requests", {}).items():
            amounts[name] += int(amount) * 1000
    share = pod["metadata"].get("annotations", {}).get(FRACTION)
    if share:
        amounts[GPU] += int(Fraction(share) * 1000)
    return amounts


Excess = dict[tuple[str, str], int]
"""(node, what) → how much more of it was given than there is."""


def overcommitted(nodes: Mapping[str, Unstructured], pods: Iterable[Unstructured]) -> Excess:
    """Nodes and devices of which more was given than there is; of MIG, instances that one GPU can't hold together."""
    used: dict[str, Counter[str]] = {}
    devices: Counter[tuple[str, int]] = Counter()
    instances: dict[tuple[str, int], list[str]] = {}
    for pod in pods:
        where = pod["spec"].get("nodeName")
        if where not in nodes:
            continue
        amounts = asked(pod)
        used.setdefault(where, Counter())["pods"] += 1
        profile = mig_profile(pod)
        for index in device_list(pod) if profile else ():
            instances.setdefault((where, index), []).append(profile)
        share = pod["metadata"].get("annotations", {}).get(FRACTION)
        if share:
            del amounts[GPU]  # counted on its device
        for name, amount in amounts.items():
            if not name.startswith(MIG):
                used[where][name] += amount
        for index in device_list(pod) if not profile else ():
            devices[where, index] += int(Fraction(share) * 1000) if share else 1000
    found: Excess = {}
    for name, amounts in used.items():
        for resource, amount in amounts.items():
            there = int(nodes[name]["status"]["allocatable"].get(resource, 0))
            found[name, resource] = amount - there * (1 if resource == "pods" else 1000)
    for (name, index), milli in devices.items():
        found[name, f"GPU {index}"] = milli - 1000
    for (name, index), profiles in instances.items():
        found[name, f"MIG of GPU {index}"] = 0 if is_legal_layout(H100, profiles) else len(profiles)
    return {what: more for what, more in found.items() if more > 0}


def grown(before: Excess, after: Excess) -> list[str]:
    """What a step has made worse; what was too much before it is not its fault."""
    return [
        f"{name}: {more} of {what} too many"
        for (name, what), more in after.items()
        if more > before.get((name, what), 0)
    ]


def mig_profile(pod: Unstructured) -> str:
    for container in pod["spec"]["containers"]:
        for name in container["resources"].get("requests", {}):
            if name.startswith(MIG):
                return str(name.removeprefix(MIG))
    return ""


def ill_gpus(node: Unstructured) -> set[int]:
    text = node["metadata"].get("annotations", {}).get(UNHEALTHY, "")
    return {int(part) for part in text.split(",") if part}


def device_list(pod: Unstructured) -> list[int]:
    text = pod["metadata"].get("annotations", {}).get(DEVICES, "")
    return [int(part) for part in text.split(",") if part]


class Books:
    """The quota tree of a world's ClusterQueues and Cohorts."""

    def __init__(self, objects: Iterable[Unstructured]) -> None:
        trees = list(objects)

        def of_kind(kind: str) -> dict[str, Unstructured]:
            return {one["metadata"]["name"]: one["spec"] for one in trees if one["kind"] == kind}

        self.queues, self.cohorts = of_kind("ClusterQueue"), of_kind("Cohort")
        self.flavors = of_kind("ResourceFlavor")
        self.local = {name: spec["clusterQueue"] for name, spec in of_kind("LocalQueue").items()}
        for spec in self.queues.values():
            if spec.get("cohortName"):
                self.cohorts.setdefault(spec["cohortName"], {})

    def cells(self) -> list[Cell]:
        return sorted(
            {
                (flavor["name"], cell["name"])
                for spec in self.queues.values()
                for group in spec["resourceGroups"]
                for flavor in group["flavors"]
                for cell in flavor["resources"]
            }
        )

    def quota(self, queue: str, cell: Cell) -> tuple[int, int | None, int | None]:
        """Nominal, borrowing limit, lending limit."""
        return _limits(self.queues[queue], cell)

    def never_lent(self, queue: str, cell: Cell) -> int:
        nominal, _, lend = self.quota(queue, cell)
        return 0 if lend is None else max(0, nominal - lend)

    def parent(self, cohort: str) -> str:
        return str(self.cohorts.get(cohort, {}).get("parentName", ""))

    def chain(self, queue: str) -> list[str]:
        """The cohorts above a queue, the nearest first."""
        found, cohort = [], str(self.queues[queue].get("cohortName", ""))
        while cohort:
            found.append(cohort)
            cohort = self.parent(cohort)
        return found

    def members(self, cohort: str) -> tuple[list[str], list[str]]:
        """Queues and cohorts right below it."""
        queues = [name for name, spec in self.queues.items() if spec.get("cohortName") == cohort]
        return queues, [name for name in self.cohorts if self.parent(name) == cohort]

    def cohort_limits(self, cohort: str, cell: Cell) -> tuple[int, int | None, int | None]:
        """Quota of its own, borrowing limit, lending limit."""
        return _limits(self.cohorts.get(cohort, {}), cell)

    def cohort_capacity(self, cohort: str, cell: Cell) -> int:
        """Quota of its own, and what those below it lend."""
        queues, cohorts = self.members(cohort)
        lent = sum(self.quota(queue, cell)[0] - self.never_lent(queue, cell) for queue in queues)
        lent += sum(self.cohort_capacity(each, cell) - self._kept(each, cell) for each in cohorts)
        return self.cohort_limits(cohort, cell)[0] + lent

    def _kept(self, cohort: str, cell: Cell) -> int:
        """What a cohort never lends to its parent."""
        lend = self.cohort_limits(cohort, cell)[2]
        return 0 if lend is None else max(0, self.cohort_capacity(cohort, cell) - lend)

    def cohort_usage(self, cohort: str, cell: Cell, usage: Usage) -> int:
        queues, cohorts = self.members(cohort)
        used = sum(max(0, usage.get(queue, Counter())[cell] - self.never_lent(queue, cell)) for queue in queues)
        return used + sum(max(0, self.cohort_usage(each, cell, usage) - self._kept(each, cell)) for each in cohorts)

    def pushed_over(self, before: Usage, after: Usage) -> list[str]:
        """Where a step has made usage larger than it may be; what was too much before is not the step's fault."""
        changed = {
            cell for queue in after for cell, used in after[queue].items() if used > before.get(queue, Counter())[cell]
        }
        found = []
        for cell in sorted(changed):
            for queue in self.queues:
                used = after.get(queue, Counter())[cell]
                nominal, borrow, _ = self.quota(queue, cell)
                if used <= before.get(queue, Counter())[cell]:
                    continue
                if not self.chain(queue) and used > nominal:
                    found.append(f"{queue} uses {used} of {nominal} {cell}")
                if borrow is not None and used > nominal + borrow:
                    found.append(f"{queue} uses {used} of {nominal} + {borrow} {cell}")
            found += [text for cohort in self.cohorts if (text := self._cohort_over(cohort, cell, before, after))]
        return found

    def _cohort_over(self, cohort: str, cell: Cell, before: Usage, after: Usage) -> str:
        """Below the top a cohort may borrow from its parent, as far as its limit allows."""
        used, borrow = self.cohort_usage(cohort, cell, after), self.cohort_limits(cohort, cell)[1]
        if self.parent(cohort) and borrow is None:
            return ""
        capacity = self.cohort_capacity(cohort, cell) + (borrow or 0 if self.parent(cohort) else 0)
        if used <= capacity or used <= self.cohort_usage(cohort, cell, before):
            return ""
        return f"cohort {cohort} uses {used} of {capacity} {cell}"

    def usage(
        self,
        workloads: Mapping[str, Unstructured],
        pods: Iterable[Unstructured],
        nodes: Mapping[str, Unstructured],
    ) -> Usage:
        """Held by Workloads as their status says, and by every other queued pod that is on a node."""
        totals: Usage = {}
        for tree in workloads.values():
            admission = tree["status"].get("admission")
            if admission is None:
                continue
            sets = {one["name"]: one for one in tree["spec"]["podSets"]}
            total = totals.setdefault(admission["clusterQueue"], Counter())
            for part in admission["podSetAssignments"]:
                template = sets[part["name"]]["template"]
                amounts = asked({"metadata": template.get("metadata") or {}, "spec": template["spec"]})
                for resource, flavor in part["flavors"].items():
                    total[flavor, resource] += amounts[resource] * part["count"]
        for pod in pods:
            meta = pod["metadata"]
            queue = self.local.get(meta.get("labels", {}).get("kueue.x-k8s.io/queue-name", ""))
            if queue is None or OWNER in meta.get("annotations", {}) or not pod["spec"].get("nodeName"):
                continue
            total = totals.setdefault(queue, Counter())
            labels = nodes.get(pod["spec"]["nodeName"], {"metadata": {"labels": {}}})["metadata"]["labels"]
            for resource, amount in asked(pod).items():
                total[self.flavor_of(queue, labels, resource), resource] += amount
        return totals

    def flavor_of(self, queue: str, labels: Mapping[str, str], resource: str) -> str:
        for group in self.queues[queue]["resourceGroups"]:
            if resource in group["coveredResources"]:
                names = [flavor["name"] for flavor in group["flavors"]]
                fitting = [name for name in names if self.flavors[name].get("nodeLabels", {}).items() <= labels.items()]
                return (fitting or names)[0]
        return ""


def _limits(spec: Unstructured, cell: Cell) -> tuple[int, int | None, int | None]:
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for one in flavor["resources"]:
                if (flavor["name"], one["name"]) == cell:
                    limits = [one.get("borrowingLimit"), one.get("lendingLimit")]
                    borrow, lend = (None if raw is None else int(raw) * 1000 for raw in limits)
                    return int(one["nominalQuota"]) * 1000, borrow, lend
    return 0, None, None


__all__ = [
    "PODSET",
    "POOL",
    "Books",
    "Excess",
    "Usage",
    "asked",
    "device_list",
    "grown",
    "ill_gpus",
    "mig_profile",
    "overcommitted",
]
