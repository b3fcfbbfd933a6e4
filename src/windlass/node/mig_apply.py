"""Executes MIG plans on the hardware step by step, and rolls back if a step fails.

The MIG manager passes `GpuPlan`s; this calls the device back end. Every step has an inverse: after a failure, the
steps already done are undone in reverse order, so that the GPU gets its former layout back. A mode change that
needs a reset resets that GPU only. Steps that could not be undone are named in the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from windlass.node.backend.protocol import DeviceBackend, DeviceError, MigModeChange
from windlass.sharing.inventory import Gpu
from windlass.sharing.mig_plan import Create, Destroy, GpuPlan, SetMode, Step

Report = Callable[[str], None]
LOOK_AGAIN_SECONDS = (0.1, 0.3, 0.6, 1.0, 0.0)


def apply_plans(backend: DeviceBackend, plans: Sequence[GpuPlan], report: Report = lambda line: None) -> None:
    """Executes all plans, GPU by GPU. Raises a `DeviceError` after a failure and its rollback."""
    refusals = [f"GPU {plan.index}: {plan.refusal}" for plan in plans if plan.refusal]
    if refusals:
        raise DeviceError("; ".join(refusals))
    done: list[tuple[str, Step]] = []
    for plan in plans:
        for step in plan.steps:
            try:
                _execute(backend, plan.uuid, step)
            except Exception as error:  # also a bug must not leave a GPU with half a layout
                report(f"GPU {plan.index}: {describe_step(step)} failed: {error}")
                stuck = _undo(backend, done, report)
                rollback_note = f"; not rolled back: {'; '.join(stuck)}" if stuck else "; rolled back"
                failure = f"GPU {plan.index}: {describe_step(step)}: {error}{rollback_note}"
                raise DeviceError(failure) from None
            done.append((plan.uuid, step))
            report(f"GPU {plan.index}: {describe_step(step)}")


def describe_step(step: Step) -> str:
    match step:
        case Create(profile, start):
            return f"create {profile} at slice {start}"
        case Destroy(_, profile, start):
            return f"destroy {profile} at slice {start}"
        case SetMode(enabled):
            return f"MIG mode {'on' if enabled else 'off'}"


def _execute(backend: DeviceBackend, uuid: str, step: Step) -> None:
    match step:
        case Create(profile, start):
            backend.create_instance(uuid, profile, start)
        case Destroy(_, profile, start):
            # Not by the plan's number: an instance that a rollback created again has a new one.
            backend.destroy_instance(uuid, _instance_at(backend, uuid, profile, start))
        case SetMode(enabled):
            _set_mode(backend, uuid, enabled)


def _set_mode(backend: DeviceBackend, uuid: str, enabled: bool) -> None:
    if backend.set_mig_mode(uuid, enabled) is MigModeChange.NEEDS_RESET:
        try:
            backend.reset(uuid)
        except DeviceError as error:
            # Leave nothing pending: otherwise the next reboot would change the mode unexpectedly.
            backend.set_mig_mode(uuid, not enabled)
            raise DeviceError(f"the change of MIG mode needs a reset of the GPU, which failed: {error}") from None
    if _gpu(backend, uuid).mig_enabled != enabled:
        raise DeviceError("the driver accepted the MIG mode and did not change it; reboot the node")


def _undo(backend: DeviceBackend, done: Sequence[tuple[str, Step]], report: Report) -> list[str]:
    stuck = []
    for uuid, step in reversed(done):
        inverse = _inverse(step)
        try:
            _execute(backend, uuid, inverse)
            report(f"{uuid}: rolled back: {describe_step(inverse)}")
        except DeviceError as error:
            stuck.append(f"{describe_step(inverse)}: {error}")
    return stuck


def _inverse(step: Step) -> Step:
    match step:
        case Create(profile, start):
            return Destroy(-1, profile, start)
        case Destroy(_, profile, start):
            return Create(profile, start)
        case SetMode(enabled):
            return SetMode(not enabled)


def _gpu(backend: DeviceBackend, uuid: str) -> Gpu:
    gpu = backend.inventory().gpu(uuid)
    if gpu is None:
        raise DeviceError(f"GPU {uuid} is gone")
    return gpu


def _instance_at(backend: DeviceBackend, uuid: str, profile: str, start: int) -> int:
    """Looked for more than once: right after another instance was destroyed, the driver may not list it."""
    for pause in LOOK_AGAIN_SECONDS:
        for instance in _gpu(backend, uuid).instances:
            # `1c.3g.40gb` is a compute instance of GPU instance profile `3g.40gb`.
            if instance.start == start and instance.profile.rpartition("c.")[2] == profile.rpartition("c.")[2]:
                return instance.gpu_instance
        time.sleep(pause)
    raise DeviceError(f"there is no {profile} at slice {start}")
