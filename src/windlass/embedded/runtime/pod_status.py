"""A pod's status from the state of its containers: phase, conditions, container statuses. Called by `kubelet`."""

from __future__ import annotations

from windlass.embedded.api.defaults_pod import qos_class
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.controllers.objects import with_condition
from windlass.embedded.runtime.container_run import INIT, MAIN, SIDECAR
from windlass.embedded.runtime.pod_worker import PodWorker
from windlass.model.unstructured import Unstructured


def pod_status(worker: PodWorker, pod: Unstructured, now: float, host_ip: str, pod_ip: str) -> Unstructured:
    """The kubelet's report; fields and conditions of others stay unchanged."""
    status = dict(pod.get("status") or {})
    phase = pod_phase(worker)
    over = phase in ("Succeeded", "Failed")
    inits = [run for run in worker.container_runs if run.role != MAIN]
    mains = [run for run in worker.container_runs if run.role == MAIN]
    status["phase"] = phase
    status["startTime"] = status.get("startTime") or format_time(worker.started_at or now)
    status["hostIP"], status["hostIPs"] = host_ip, [{"ip": host_ip}]
    if worker.failure is not None:
        status["reason"], status["message"] = worker.failure
    if pod_ip:  # a finished pod has released its address but still shows it
        status["podIP"], status["podIPs"] = pod_ip, [{"ip": pod_ip}]
    if inits:
        status["initContainerStatuses"] = [
            run.status(pod, run.is_running if run.role == SIDECAR else _is_initialised(run)) for run in inits
        ]
    status["containerStatuses"] = [run.status(pod, run.is_running and not over) for run in mains]
    status["conditions"] = _conditions(worker, pod, phase, now)
    status["qosClass"] = status.get("qosClass") or qos_class(pod["spec"])
    return status


def pod_phase(worker: PodWorker) -> str:
    if worker.failure is not None:
        return "Failed" if worker.is_finished else "Running"
    inits = [run for run in worker.container_runs if run.role == INIT]
    mains = [run for run in worker.container_runs if run.role == MAIN]
    if worker.is_finished:
        codes = [run.ended.code for run in (*inits, *mains) if run.ended is not None]
        all_done = all(run.is_done for run in mains)
        return "Succeeded" if all_done and not any(codes) else "Failed"
    begun = any(run.is_running or run.ended is not None or run.restarts for run in mains)
    return "Running" if begun else "Pending"


def _is_initialised(container: object) -> bool:
    ended = getattr(container, "ended", None)
    return ended is not None and ended.code == 0


def _conditions(worker: PodWorker, pod: Unstructured, phase: str, now: float) -> list[Unstructured]:
    conditions = list((pod.get("status") or {}).get("conditions") or ())
    inits = [container for container in worker.container_runs if container.role == INIT]
    uninitialized = [container.name for container in inits if not _is_initialised(container)]
    mains = [container for container in worker.container_runs if container.role == MAIN]
    unready = [container.name for container in mains if not container.is_running]
    if phase == "Succeeded":
        uninitialized = []
    new: list[Unstructured] = [_condition("PodReadyToStartContainers", phase not in ("Succeeded", "Failed"), "", "")]
    incomplete = f"containers with incomplete status: [{' '.join(uninitialized)}]"
    new.append(_condition("Initialized", not uninitialized, "ContainersNotInitialized", incomplete))
    if phase == "Succeeded":
        new[1] |= {"reason": "PodCompleted"}
    why, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    if phase == "Succeeded":
        why, message = "PodCompleted", ""
    elif phase == "Failed":
        why, message = "PodFailed", ""
    ready = phase == "Running" and not unready
    new += [_condition("Ready", ready, why, message), _condition("ContainersReady", ready, why, message)]
    new.append({"type": "PodScheduled", "status": "True"})
    for condition in new:
        conditions = with_condition(conditions, condition, now)
    return conditions


def _condition(kind: str, is_true: bool, reason: str, message: str) -> Unstructured:
    if is_true:
        return {"type": kind, "status": "True"}
    condition = {"type": kind, "status": "False", "reason": reason, "message": message}
    return {key: value for key, value in condition.items() if value}
