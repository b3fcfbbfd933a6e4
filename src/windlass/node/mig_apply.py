"""Carries a MIG plan out on the hardware, step by step, and back again where a step fails.

Fed with `GpuPlan`s by the MIG manager; calls the device back end. Every step has its opposite: when one fails, those
already done are undone in reverse order, so that the GPU has the layout that it had. A change of mode that waits for a
reset gets one, of this GPU alone. What could not be undone is part of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.node.backend.protocol import DeviceBackend, DeviceError, MigModeChange
from windlass.sharing.inventory import Gpu
from windlass.sharing.mig_plan import Create, Destroy, GpuPlan, SetMode, Step

Report = Callable[[str], None]


def apply_plans(backend: DeviceBackend, plans: Sequence[GpuPlan], report: Report = lambda line: None) -> None:
    """All plans, GPU after GPU; a `DeviceError` where one failed, after everything was rolled back."""
    refused = [f"GPU {plan.index}: {plan.refusal}" for plan in plans if plan.refusal]
    if refused:
        raise DeviceError("; ".join(refused))
    done: list[tuple[str, Step]] = []
    for plan in plans:
        for step in plan.steps:
            try:
                _carry_out(backend, plan.uuid, step)
            except Exception as error:  # also a mistake of ours must not leave a GPU half cut
                report(f"GPU {plan.index}: {describe_step(step)} failed: {error}")
                stuck = _undo(backend, done, report)
                left = f"; not rolled back: {'; '.join(stuck)}" if stuck else "; rolled back"
                raise DeviceError(f"GPU {plan.index}: {describe_step(step)}: {error}{left}") from None
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


def _carry_out(backend: DeviceBackend, uuid: str, step: Step) -> None:
    match step:
        case Create(profile, start):
            backend.create_instance(uuid, profile, start)
        case Destroy(_, profile, start):
            # Not by the number in the plan: an instance that a rollback made again has another.
            backend.destroy_instance(uuid, _instance_at(_gpu(backend, uuid), profile, start))
        case SetMode(enabled):
            _set_mode(backend, uuid, enabled)


def _set_mode(backend: DeviceBackend, uuid: str, enabled: bool) -> None:
    if backend.set_mig_mode(uuid, enabled) is MigModeChange.NEEDS_RESET:
        try:
            backend.reset(uuid)
        except DeviceError as error:
            # Leave nothing pending: the next reboot would otherwise change the mode behind everybody's back.
            backend.set_mig_mode(uuid, not enabled)
            raise DeviceError(f"the reset that it needs failed: {error}") from None
    if _gpu(backend, uuid).mig_enabled != enabled:
        raise DeviceError("the driver accepted it and didn't do it; the node has to be rebooted")


def _undo(backend: DeviceBackend, done: Sequence[tuple[str, Step]], report: Report) -> list[str]:
    stuck = []
    for uuid, step in reversed(done):
        opposite = _opposite(step)
        try:
            _carry_out(backend, uuid, opposite)
            report(f"{uuid}: rolled back: {describe_step(opposite)}")
        except DeviceError as error:
            stuck.append(f"{describe_step(opposite)}: {error}")
    return stuck


def _opposite(step: Step) -> Step:
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


def _instance_at(gpu: Gpu, profile: str, start: int) -> int:
    for instance in gpu.instances:
        # The profile of a GPU instance whose compute is cut stands behind the `c.`.
        if instance.start == start and instance.profile.rpartition("c.")[2] == profile.rpartition("c.")[2]:
            return instance.gpu_instance
    raise DeviceError(f"there is no {profile} at slice {start}")
