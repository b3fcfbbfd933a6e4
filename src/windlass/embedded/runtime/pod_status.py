"""A pod's status out of the state of its containers: phase, conditions, container statuses. Called by the kubelet."""

from __future__ import annotations

from windlass.embedded.controllers.objects import format_time, with_condition
from windlass.embedded.runtime.container_run import INIT, MAIN, SIDECAR
from windlass.embedded.runtime.pod_worker import PodWorker
from windlass.model.unstructured import Unstructured

_OWN = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def pod_status(worker: PodWorker, pod: Unstructured, now: float, host_ip: str, pod_ip: str) -> Unstructured:
    """What the kubelet reports; fields and conditions of others stay as they are."""
    status = dict(pod.get("status") or {})
    phase = pod_phase(worker)
    over = phase in ("Succeeded", "Failed")
    first = [box for box in worker.container_runs if box.role != MAIN]
    mains = [box for box in worker.container_runs if box.role == MAIN]
    status["phase"] = phase
    status["startTime"] = status.get("startTime") or format_time(worker.started_at or now)
    status["hostIP"], status["hostIPs"] = host_ip, [{"ip": host_ip}]
    if worker.failure is not None:
        status["reason"], status["message"] = worker.failure
    if pod_ip:  # a pod that has ended gave its address back, and still shows which it was
        status["podIP"], status["podIPs"] = pod_ip, [{"ip": pod_ip}]
    if first:
        status["initContainerStatuses"] = [
            box.status(pod, box.is_running if box.role == SIDECAR else _is_initialised(box)) for box in first
        ]
    status["containerStatuses"] = [box.status(pod, box.is_running and not over) for box in mains]
    status["conditions"] = _conditions(worker, pod, phase, now)
    status["qosClass"] = status.get("qosClass") or qos_class(pod)
    return status


def pod_phase(worker: PodWorker) -> str:
    if worker.failure is not None:
        return "Failed" if worker.is_finished else "Running"
    inits = [box for box in worker.container_runs if box.role == INIT]
    mains = [box for box in worker.container_runs if box.role == MAIN]
    if worker.is_finished:
        codes = [box.ended.code for box in (*inits, *mains) if box.ended is not None]
        done = all(box.is_done for box in mains)
        return "Succeeded" if done and not any(codes) else "Failed"
    begun = any(box.is_running or box.ended is not None or box.restarts for box in mains)
    return "Running" if begun else "Pending"


def _is_initialised(box: object) -> bool:
    ended = getattr(box, "ended", None)
    return ended is not None and ended.code == 0


def _conditions(run: PodWorker, pod: Unstructured, phase: str, now: float) -> list[Unstructured]:
    conditions = list((pod.get("status") or {}).get("conditions") or ())
    inits = [box for box in run.container_runs if box.role == INIT]
    missing = [box.name for box in inits if not _is_initialised(box)]
    mains = [box for box in run.container_runs if box.role == MAIN]
    unready = [box.name for box in mains if not box.is_running]
    if phase == "Succeeded":
        missing = []
    new: list[Unstructured] = [
        _yes("PodReadyToStartContainers", phase not in ("Succeeded", "Failed"), "", "")
    ]
    incomplete = f"containers with incomplete status: [{' '.join(missing)}]"
    new.append(_yes("Initialized", not missing, "ContainersNotInitialized", incomplete))
    if phase == "Succeeded":
        new[1] |= {"reason": "PodCompleted"}
    why, words = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    if phase == "Succeeded":
        why, words = "PodCompleted", ""
    elif phase == "Failed":
        why, words = "PodFailed", ""
    ready = phase == "Running" and not unready
    new += [_yes("Ready", ready, why, words), _yes("ContainersReady", ready, why, words)]
    new.append({"type": "PodScheduled", "status": "True"})
    for condition in new:
        conditions = with_condition(conditions, condition, now)
    return conditions


def _yes(kind: str, is_so: bool, reason: str, message: str) -> Unstructured:
    if is_so:
        return {"type": kind, "status": "True"}
    condition = {"type": kind, "status": "False", "reason": reason, "message": message}
    return {key: value for key, value in condition.items() if value}


def qos_class(pod: Unstructured) -> str:
    """Guaranteed, Burstable or BestEffort, by what the containers ask for."""
    guaranteed, anything = True, False
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            anything |= name in requests or name in limits
            guaranteed &= name in limits and requests.get(name, limits.get(name)) == limits[name]
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
