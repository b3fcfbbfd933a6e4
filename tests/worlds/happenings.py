"""What can happen in a world: people submit, change and delete work, administrators edit queues, machines fail.

Every happening takes the world as it is played (`play.Play`); the driver draws them by weight.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from tests.invariants.objects import HOSTNAME, QUEUE, pod_spec
from tests.worlds.draw_world import GPU, PRIORITIES, draw_queue

from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION, RACK_LABEL, SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Play

Happening = Callable[["Play"], Awaitable[None]]
TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
GROUP_NAME, GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


async def submit_queued_job(play: Play) -> None:
    await play.create(job(play, queue=play.rng.choice(play.spec.queues)))


async def submit_many_jobs(play: Play) -> None:
    for _ in range(play.rng.randint(5, 12)):
        await submit_queued_job(play)


async def submit_job_without_queue(play: Play) -> None:
    await play.create(job(play, queue=""))


async def submit_pod(play: Play) -> None:
    rng = play.rng
    await play.create(pod(play, play.name("pod"), _spec(play, rng.choice((0, 1, 1, 2, 4)))))


async def submit_queued_pod(play: Play) -> None:
    labels = {QUEUE: play.rng.choice(play.spec.queues)}
    await play.create(pod(play, play.name("qpod"), _spec(play, play.rng.choice((1, 2))), labels=labels))


async def submit_pod_group(play: Play) -> None:
    """Kueue's plain pods: they say their group and its size."""
    name, size, rng = play.name("group"), play.rng.randint(2, 4), play.rng
    gpus, priority = rng.choice((1, 2, 4)), rng.choice([*PRIORITIES])
    labels = {QUEUE: rng.choice(play.spec.queues), GROUP_NAME: name}
    for number in range(size):
        spec = _spec(play, gpus, priority)
        made = pod(play, f"{name}-{number}", spec, labels=labels, annotations={GROUP_SIZE: str(size)})
        await play.create(made)


async def submit_apart_pods(play: Play) -> None:
    """Pods that keep away from each other: by node or by rack, required."""
    name, rng = play.name("apart"), play.rng
    key = rng.choice((HOSTNAME, RACK_LABEL))
    for number in range(rng.randint(2, 3)):
        spec = _spec(play, rng.choice((1, 2)))
        if rng.random() < 0.5:
            term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": key}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        else:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ]
        await play.create(pod(play, f"{name}-{number}", spec, labels={"app": name}))


async def submit_service(play: Play) -> None:
    """A Deployment with a disruption budget."""
    name, rng = play.name("serve"), play.rng
    template = {"metadata": {"labels": {"app": name}}, "spec": _spec(play, 1)}
    del template["spec"]["restartPolicy"]
    replicas = rng.randint(1, 3)
    await play.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        }
    )
    await play.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"maxUnavailable": rng.choice((0, 1)), "selector": {"matchLabels": {"app": name}}},
        }
    )


def job(play: Play, queue: str) -> Unstructured:
    rng = play.rng
    spec = _spec(play, rng.choice((1, 1, 2, 4, 8)))
    seconds = rng.choice((20, 60, 200, 1000))
    metadata: Unstructured = {"annotations": {SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}}
    annotations: Unstructured = {}
    if play.spec.declares_durations and rng.random() < 0.7:
        annotations[DECLARED_DURATION_ANNOTATION] = f"{int(seconds * rng.uniform(1, 2)) + 10}s"
    if play.spec.has_topology and queue and rng.random() < 0.4:
        level = rng.choice((RACK_LABEL, HOSTNAME))
        metadata["annotations"][TOPOLOGY.format(rng.choice(("required", "preferred")))] = level
    pods = rng.choice((1, 1, 2, 3, 4))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": play.name("job" if queue else "free"),
            "namespace": "team",
            "labels": {QUEUE: queue} if queue else {},
            "annotations": annotations,
        },
        "spec": {
            "suspend": bool(queue) and rng.random() < 0.8,
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 100,
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def pod(play: Play, name: str, spec: Unstructured, **metadata: Any) -> Unstructured:
    seconds = play.rng.choice((30, 100, 600))
    annotations = {SIMULATED_DURATION_ANNOTATION: f"{seconds}s", **metadata.pop("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "annotations": annotations, **metadata},
        "spec": spec,
    }


def _spec(play: Play, gpus: int, priority: str = "") -> Unstructured:
    rng = play.rng
    made = pod_spec(1, gpus, restartPolicy="Never", priorityClassName=priority or rng.choice([*PRIORITIES]))
    made["containers"][0]["image"] = "train"
    made["terminationGracePeriodSeconds"] = rng.choice((0, 1, 5))
    return made


# Changes by people


async def delete_work(play: Play) -> None:
    kind = play.rng.choice(("jobs.batch", "jobs.batch", "pods", "deployments.apps"))
    found = [one for one in await play.list(kind) if kind != "pods" or "ownerReferences" not in one["metadata"]]
    if found:
        await play.delete(kind, play.rng.choice(found))


async def resize_job(play: Play) -> None:
    found = [one for one in await play.list("jobs.batch") if not one["status"].get("completionTime")]
    if found:
        chosen = play.rng.choice(found)
        await play.patch("jobs.batch", chosen, {"spec": {"parallelism": play.rng.randint(1, 4)}})


async def edit_queue(play: Play) -> None:
    """Another quota, other limits and policies; the flavors stay."""
    name = play.rng.choice(play.spec.queues)
    found = next(one for one in await play.list("clusterqueues.kueue.x-k8s.io") if one["metadata"]["name"] == name)
    flavors = [one["name"] for one in found["spec"]["resourceGroups"][0]["flavors"]]
    total = play.gpus_of_cluster
    in_cohort = "cohortName" in found["spec"]  # only then may it have limits for borrowing and lending
    made = draw_queue(play.rng, name, flavors, total, len(play.spec.queues), in_cohort=in_cohort)
    groups = made["spec"]["resourceGroups"]
    await play.patch("clusterqueues.kueue.x-k8s.io", found, {"spec": {"resourceGroups": groups}})


async def stop_or_start_queue(play: Play) -> None:
    found = play.rng.choice(await play.list("clusterqueues.kueue.x-k8s.io"))
    stopped = found["spec"].get("stopPolicy", "None") != "None"
    policy = "None" if stopped else play.rng.choice(("Hold", "HoldAndDrain"))
    await play.patch("clusterqueues.kueue.x-k8s.io", found, {"spec": {"stopPolicy": policy}})


async def cordon_or_uncordon(play: Play) -> None:
    found = play.rng.choice(await play.list("nodes"))
    await play.patch("nodes", found, {"spec": {"unschedulable": not found["spec"].get("unschedulable", False)}})


# Machines and networks


async def fail_node(play: Play) -> None:
    play.fault(f"node/{play.rng.choice(await play.node_names())}")


async def fail_gpu(play: Play) -> None:
    node = play.rng.choice(await play.list("nodes"))
    gpus = int(node["status"]["capacity"].get(GPU, 0))
    if gpus:
        play.fault(f"gpu/{node['metadata']['name']}:{play.rng.randrange(gpus)}")


async def heal(play: Play) -> None:
    play.heal()


async def restart_scheduler(play: Play) -> None:
    await play.restart_scheduler()


async def bad_network(play: Play) -> None:
    play.set_network(latency=play.rng.choice((0.01, 0.1)), failures=play.rng.choice((0.02, 0.1)))


async def slow_watches(play: Play) -> None:
    play.set_network(watch_lag=play.rng.choice((0.05, 0.5, 2.0)))


async def starve(play: Play) -> None:
    """The machine is short of CPU: decisions take long, and the world goes on meanwhile."""
    play.set_network(decision_seconds=play.rng.choice((0.3, 2.0)))


async def good_network(play: Play) -> None:
    play.set_network()


HAPPENINGS: tuple[tuple[int, Happening], ...] = (
    (10, submit_queued_job),
    (4, submit_many_jobs),
    (4, submit_job_without_queue),
    (4, submit_pod),
    (3, submit_queued_pod),
    (3, submit_pod_group),
    (3, submit_apart_pods),
    (2, submit_service),
    (5, delete_work),
    (2, resize_job),
    (3, edit_queue),
    (2, stop_or_start_queue),
    (2, cordon_or_uncordon),
    (2, fail_node),
    (3, fail_gpu),
    (4, heal),
    (2, restart_scheduler),
    (2, bad_network),
    (2, slow_watches),
    (2, starve),
    (6, good_network),
)
"""With how often they happen."""


def draw_happening(rng: Random) -> Happening:
    return rng.choices([each for _, each in HAPPENINGS], [weight for weight, _ in HAPPENINGS])[0]
