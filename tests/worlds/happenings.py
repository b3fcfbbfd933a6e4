"""What can happen in a world: people submit, change and delete work, queues and nodes are edited, machines fail.

Every happening takes the world as it is played (`play.Play`); the driver draws them by weight, of those that its
cluster can play.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.invariants.objects import QUEUE
from tests.worlds.draw_work import (
    GATE,
    LARGE,
    add_rule,
    draw_group,
    draw_job,
    draw_large_gang,
    draw_owner,
    draw_pod,
    pod_spec,
    run_seconds,
)
from tests.worlds.draw_world import GPU, MIG, SPECIAL_KEY, QueueShape, draw_queue

from windlass.model.names.windlass import RACK_LABEL, SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Play

Happening = Callable[["Play"], Awaitable[None]]
CLUSTER_QUEUES, JOBS = "clusterqueues.kueue.x-k8s.io", "jobs.batch"
MANY_JOBS = 15
"""With so many that have not ended, no more come at once: worlds stay small."""
SPECIAL = {"key": SPECIAL_KEY, "value": "yes", "effect": "NoSchedule"}
ALLOCATED = "windlass.dev/allocated-devices"
NOT_PREEMPTABLE = {"volcano.sh/preemptable": "false"}


# Work comes


async def submit_queued_job(play: Play) -> None:
    await play.create(draw_job(play, play.rng.choice(play.spec.queues)))


async def submit_many_jobs(play: Play) -> None:
    count = play.rng.randint(4, 8)
    unfinished = [job for job in await play.list(JOBS) if not job.get("status", {}).get("completionTime")]
    if play.spec.theme.claims:
        await _claim_quota(play, len(unfinished))
        return
    for _ in range(count if len(unfinished) < MANY_JOBS else 1):
        await submit_queued_job(play)


async def _claim_quota(play: Play, jobs: int) -> None:
    """Jobs of one GPU that borrow fill one node after the other, so that those that are to go first are on all of them;
    then an owner of quota wants a whole node."""
    found = sorted(await play.list(CLUSTER_QUEUES), key=_gpu_quota)
    names = [queue["metadata"]["name"] for queue in found]
    if jobs >= play.gpus_of_cluster:
        made = draw_job(play, names[-1], LARGE)
        made["spec"].update(parallelism=1, completions=1)
        made["spec"]["template"]["spec"]["priorityClassName"] = "normal"
        await play.create(made)
        return
    for _ in range(play.gpus_of_largest_node):
        await play.create(draw_job(play, names[0]))


def _gpu_quota(queue: Unstructured) -> int:
    flavors = queue["spec"]["resourceGroups"][0]["flavors"]
    return sum(int(cell["nominalQuota"]) for one in flavors for cell in one["resources"] if cell["name"] == GPU)


async def submit_job_without_queue(play: Play) -> None:
    await play.create(draw_job(play, ""))


async def submit_guarded_job(play: Play) -> None:
    """One that must not be preempted."""
    made = draw_job(play, play.rng.choice((*play.spec.queues, "")))
    made["metadata"]["annotations"].update(NOT_PREEMPTABLE)
    await play.create(made)


async def submit_owner(play: Play) -> None:
    made = draw_owner(play, play.rng.choice(play.spec.queues))
    play.drew(f"kind: {made['kind']}")
    await play.create(made)


async def submit_pod(play: Play) -> None:
    rng = play.rng
    kind = rng.random()
    name = play.name("pod")
    if kind < 0.25:
        notes = {"gpu-fraction": rng.choice(("0.25", "0.5", "0.6"))}
        play.drew("request: share of a GPU")
        made = draw_pod(play, name, pod_spec(play, 0), annotations=notes)
    elif kind < 0.45 and MIG in play.spec.resources:
        play.drew("request: MIG instances")
        made = draw_pod(play, name, pod_spec(play, 0, mig=rng.choice((1, 2))))
    else:
        made = draw_pod(play, name, pod_spec(play, rng.choice((0, 1, 1, 2, 4))))
    if rng.random() < 0.1:
        made["metadata"]["annotations"].update(NOT_PREEMPTABLE)
    await play.create(made)


async def submit_many_pods(play: Play) -> None:
    """Single pods that fill what is free."""
    priority, gpus = play.rng.choice(play.spec.theme.fillers), play.rng.choice((1, 1, 2, 4))
    waiting = [pod for pod in await play.list("pods") if _waits(pod)]
    notes = {SIMULATED_DURATION_ANNOTATION: f"{run_seconds(play, 300, 1000)}s"}
    for _ in range(play.rng.randint(6, 16) if len(waiting) < MANY_JOBS else 1):
        await play.create(draw_pod(play, play.name("many"), pod_spec(play, gpus, priority), annotations=notes))


async def submit_gated_pod(play: Play) -> None:
    spec = pod_spec(play, 1)
    spec["schedulingGates"] = [{"name": GATE}]
    await play.create(draw_pod(play, play.name("gated"), spec))


async def submit_queued_pod(play: Play) -> None:
    labels = {QUEUE: play.rng.choice(play.spec.queues)}
    await play.create(draw_pod(play, play.name("qpod"), pod_spec(play, play.rng.choice((1, 2))), labels=labels))


async def submit_pod_group(play: Play) -> None:
    for made in draw_group(play):
        await play.create(made)


async def submit_large_gang(play: Play) -> None:
    """Pods of two shapes that fill the empty nodes, if there is none of that kind yet."""
    pods = await play.list("pods")
    used = {pod["spec"].get("nodeName") for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")}
    empty = [node for node in await play.list("nodes") if node["metadata"]["name"] not in used and _is_open(node)]
    if empty and not any(pod["metadata"]["name"].startswith("crowd-") for pod in pods if _waits(pod)):
        for made in draw_large_gang(play, empty):
            await play.create(made)


def _is_open(node: Unstructured) -> bool:
    return not node["spec"].get("unschedulable") and not node["spec"].get("taints")


def _waits(pod: Unstructured) -> bool:
    return pod["status"].get("phase") == "Pending"


async def submit_apart_pods(play: Play) -> None:
    """Single pods with a required rule between them."""
    name = play.name("apart")
    for number in range(play.rng.randint(2, 3)):
        spec = pod_spec(play, play.rng.choice((1, 2)))
        add_rule(play, spec, name, 1)
        await play.create(draw_pod(play, f"{name}-{number}", spec, labels={"app": name}))


async def submit_service(play: Play) -> None:
    """A Deployment or a StatefulSet with a disruption budget."""
    name, rng = play.name("serve"), play.rng
    kind = rng.choice(("Deployment", "StatefulSet"))
    play.drew(f"kind: {kind}")
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(play, 1)}
    del template["spec"]["restartPolicy"]
    spec = {"replicas": rng.randint(1, 3), "selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    meta = {"name": name, "namespace": "team"}
    await play.create({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})
    budget = {"maxUnavailable": rng.choice((0, 1)), "selector": {"matchLabels": {"app": name}}}
    await play.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {**meta}, "spec": budget})


# Changes by people


async def delete_work(play: Play) -> None:
    kind = play.rng.choice((JOBS, JOBS, "pods", "deployments.apps", "statefulsets.apps", *play.owner_resources))
    found = [one for one in await play.list(kind) if kind != "pods" or "ownerReferences" not in one["metadata"]]
    if found:
        await play.delete(kind, play.rng.choice(found))


async def open_gates(play: Play) -> None:
    for pod in await play.list("pods"):
        gates = pod["spec"].get("schedulingGates") or ()
        if any(gate["name"] == GATE for gate in gates):
            await play.patch("pods", pod, {"spec": {"schedulingGates": None}})


async def resize_job(play: Play) -> None:
    """Mostly one that runs, and is in a queue."""
    found = [job for job in await play.list(JOBS) if not job.get("status", {}).get("completionTime")]
    if found:
        running = [job for job in found if not job["spec"].get("suspend")] or found
        queued = [job for job in running if QUEUE in job["metadata"].get("labels", {})] or running
        chosen = play.rng.choice(queued if play.rng.random() < 0.8 else found)
        before = int(chosen["spec"]["parallelism"])
        after = max(1, before + play.rng.choice((-2, -1, 1, 2, 2)))
        play.drew(f"size: {'larger' if after > before else 'smaller' if after < before else 'the same'}")
        await play.patch(JOBS, chosen, {"spec": {"parallelism": after}})


async def change_priority(play: Play) -> None:
    found = [one for one in await play.list(JOBS) if QUEUE in one["metadata"].get("labels", {})]
    if found:
        chosen, name = play.rng.choice(found), play.rng.choice(("work-low", "work-high"))
        await play.patch(JOBS, chosen, {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": name}}})


async def edit_queue(play: Play) -> None:
    """Another quota, other limits and policies; the flavors stay."""
    name = play.rng.choice(play.spec.queues)
    found = next(one for one in await play.list(CLUSTER_QUEUES) if one["metadata"]["name"] == name)
    groups = found["spec"]["resourceGroups"]
    flavors = tuple(one["name"] for one in groups[0]["flavors"])
    shape = QueueShape(name, flavors, play.gpus_of_cluster, len(play.spec.queues), len(groups) > 1, play.spec.theme)
    in_cohort = "cohortName" in found["spec"]  # only then may it have limits for borrowing and lending
    made = draw_queue(play.rng, shape, in_cohort=in_cohort)["spec"]
    change = {"resourceGroups": made["resourceGroups"], "preemption": made["preemption"]}
    await play.patch(CLUSTER_QUEUES, found, {"spec": change})


async def edit_cohort(play: Play) -> None:
    """A queue leaves its cohort, or comes into one."""
    found = play.rng.choice(await play.list(CLUSTER_QUEUES))
    if "cohortName" not in found["spec"]:
        await play.patch(CLUSTER_QUEUES, found, {"spec": {"cohortName": "all"}})
    elif "Limit" not in str(found["spec"]["resourceGroups"]):
        await play.patch(CLUSTER_QUEUES, found, {"spec": {"cohortName": None}})


async def edit_flavor(play: Play) -> None:
    found = play.rng.choice(await play.list("resourceflavors.kueue.x-k8s.io"))
    tolerates = {"key": SPECIAL["key"], "operator": "Exists"}
    change = None if found["spec"].get("tolerations") else [tolerates]
    await play.patch("resourceflavors.kueue.x-k8s.io", found, {"spec": {"tolerations": change}})


async def stop_or_start_queue(play: Play) -> None:
    found = play.rng.choice(await play.list(CLUSTER_QUEUES))
    stopped = found["spec"].get("stopPolicy", "None") != "None"
    policy = "None" if stopped else play.rng.choice(("Hold", "HoldAndDrain"))
    await play.patch(CLUSTER_QUEUES, found, {"spec": {"stopPolicy": policy}})


async def cordon_or_uncordon(play: Play) -> None:
    found = play.rng.choice(await play.list("nodes"))
    await play.patch("nodes", found, {"spec": {"unschedulable": not found["spec"].get("unschedulable", False)}})


async def taint_or_untaint(play: Play) -> None:
    found = play.rng.choice(await play.list("nodes"))
    taints = found["spec"].get("taints") or []
    others = [taint for taint in taints if taint["key"] != SPECIAL["key"]]
    changed = others if len(others) < len(taints) else [*taints, SPECIAL]
    await play.patch("nodes", found, {"spec": {"taints": changed or None}})


async def move_node(play: Play) -> None:
    """Its rack label changes: somebody has written it wrong before."""
    found = play.rng.choice(await play.list("nodes"))
    racks = {node["metadata"]["labels"].get(RACK_LABEL, "") for node in await play.list("nodes")} | {"new-rack"}
    await play.patch("nodes", found, {"metadata": {"labels": {RACK_LABEL: play.rng.choice(sorted(racks - {""}))}}})


# Machines and networks


async def fail_node(play: Play) -> None:
    play.fail(f"node/{play.rng.choice(await play.node_names())}")


async def fail_gpu(play: Play) -> None:
    """Mostly one that is in use."""
    gpus = {node["metadata"]["name"]: play.physical_gpus(node) for node in await play.list("nodes")}
    found = [f"{name}:{number}" for name, count in gpus.items() for number in range(count)]
    used = [
        f"{pod['spec']['nodeName']}:{number}"
        for pod in await play.list("pods")
        for number in _allocated(pod)
        if gpus.get(pod["spec"].get("nodeName", ""))
    ]
    if found:
        play.fail(f"gpu/{play.rng.choice(used if used and play.rng.random() < 0.8 else found)}")


def _allocated(pod: Unstructured) -> list[str]:
    """The GPUs that it has."""
    text = (pod["metadata"].get("annotations") or {}).get(ALLOCATED, "")
    return text.split(",") if text and pod["status"].get("phase") == "Running" else []


async def hang_kubelet(play: Play) -> None:
    """Pods that are bound there don't start, and those that are deleted don't end."""
    play.hang_kubelet(play.rng.choice(await play.node_names()))


async def heal(play: Play) -> None:
    play.heal()


async def restart_scheduler(play: Play) -> None:
    await play.restart_scheduler()


async def cut_off_leader(play: Play) -> None:
    """The replica that leads reaches the API server no more, for a while."""
    await play.cut_off_leader()


async def bad_network(play: Play) -> None:
    play.set_network(latency=play.rng.choice((0.01, 0.1)), failures=play.rng.choice((0.02, 0.1)))


async def slow_watches(play: Play) -> None:
    play.set_network(watch_lag=play.rng.choice((0.05, 0.5, 2.0)))


async def starve(play: Play) -> None:
    """The machine is short of CPU: decisions take long, watches are late, and the world goes on meanwhile."""
    seconds = play.rng.choice((0.3, 2.0))
    play.set_network(decision_seconds=seconds, watch_lag=seconds)


async def good_network(play: Play) -> None:
    play.set_network()


HAPPENINGS: tuple[tuple[int, Happening], ...] = (
    (12, submit_queued_job),
    (5, submit_many_jobs),
    (4, submit_job_without_queue),
    (3, submit_guarded_job),
    (4, submit_owner),
    (5, submit_pod),
    (3, submit_many_pods),
    (3, submit_gated_pod),
    (3, submit_queued_pod),
    (6, submit_pod_group),
    (3, submit_large_gang),
    (4, submit_apart_pods),
    (3, submit_service),
    (6, delete_work),
    (3, open_gates),
    (3, resize_job),
    (3, change_priority),
    (3, edit_queue),
    (3, edit_cohort),
    (3, edit_flavor),
    (3, stop_or_start_queue),
    (3, cordon_or_uncordon),
    (3, taint_or_untaint),
    (3, move_node),
    (3, fail_node),
    (3, fail_gpu),
    (3, hang_kubelet),
    (5, heal),
    (3, restart_scheduler),
    (9, cut_off_leader),
    (3, bad_network),
    (3, slow_watches),
    (3, starve),
    (6, good_network),
)
"""With how often they happen."""


def draw_happening(play: Play) -> Happening:
    more, others = play.spec.theme.weights, play.spec.theme.others
    able = [(weight * more.get(each.__name__, others), each) for weight, each in HAPPENINGS if play.can(each.__name__)]
    return play.rng.choices([each for _, each in able], [weight for weight, _ in able])[0]
