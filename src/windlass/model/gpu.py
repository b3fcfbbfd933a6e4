"""The GPUs that a pod requests.

Called by `cluster` with the pod's annotations and the integers of `model.requests`. GPU requests are written in several
ways, which all become one `GpuRequest`:

- `nvidia.com/gpu: 2` — whole GPUs;
- `nvidia.com/mig-1g.10gb: 1` — instances of a MIG profile;
- annotations `gpu-fraction: "0.5"` or `gpu-memory: "8192"` (MiB), with `gpu-fraction-num-devices` (KAI);
- annotations `alibabacloud.com/gpu-milli`, `gpu-count` and `gpu-card-model` (the 2023 production trace).

A share together with whole GPUs is an error. Several resources at once (whole GPUs and MIG instances, or instances of
two profiles) are placed as kube-scheduler places them: every resource is counted against what the node advertises, and
only whole GPUs, if any, are chosen device by device. `nvidia.com/gpu.shared` is a counted resource like any other and
not a `GpuRequest`. The GPUs of a node are in `model.device`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from windlass.model.device import Device, node_devices, node_replicas
from windlass.model.errors import InputError
from windlass.model.mig import profile_of_resource
from windlass.model.names.kai import KAI_FRACTION, KAI_FRACTION_CONTAINER, KAI_FRACTION_DEVICES, KAI_MEMORY
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX, NVIDIA_PREFIX
from windlass.model.names.others import ALIBABA_COUNT, ALIBABA_MILLI, ALIBABA_MODEL
from windlass.model.pod import Pod

__all__ = ["Device", "GpuRequest", "gpu_request", "node_devices", "node_replicas"]

MAX_DEVICES = 1024
"""More GPUs than any node has; a larger request is a typing error."""

_SHARE_ANNOTATIONS = (KAI_FRACTION, KAI_FRACTION_DEVICES, KAI_MEMORY, ALIBABA_MILLI, ALIBABA_COUNT)
_DECIMAL = re.compile(r"[0-9]*\.?[0-9]*")


class GpuRequest(msgspec.Struct, frozen=True):
    """GPUs that one pod needs on one node."""

    count: int
    """Devices, or instances of `profile`."""
    milli: int
    """Thousandths of each device; 1000 is a whole one. 0 where `memory_mib` asks, until a device is known."""
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    """Allowed GPU models as written, duplicates included (FGD distinguishes classes by them); empty means any."""
    profile: str = ""
    """MIG profile (`1g.10gb`, `1g.10gb+me`); empty for shares and whole GPUs."""

    @property
    def is_share(self) -> bool:
        return not self.profile and self.milli < 1000


def gpu_request(pod: Pod, requests: Mapping[str, int]) -> GpuRequest | None:
    """What `pod` asks of GPUs, or None; `requests` is its effective request."""
    annotations = pod.metadata.annotations
    try:
        found = _from_resources(requests)
        if annotations:
            found.extend(_from_annotations(annotations))
            _check_container(pod)
            models = _models(annotations)
        else:
            models = ()
        return _agreed(found, models)
    except InputError as error:
        raise error.with_context(object=f"Pod {pod.key}", code="INVALID_OBJECT") from None


def _check_container(pod: Pod) -> None:
    """KAI's webhook refuses a share for a container that the pod hasn't got."""
    name = pod.metadata.annotations.get(KAI_FRACTION_CONTAINER)
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    if name is not None and all(container.name != name for container in containers):
        names = ", ".join(container.name for container in containers)
        raise _annotation_error(KAI_FRACTION_CONTAINER, f"there is no container {name!r}", f"name one of {names}")


def _from_resources(requests: Mapping[str, int]) -> list[tuple[str, GpuRequest]]:
    found = []
    for name, amount in requests.items():
        if not name.startswith(NVIDIA_PREFIX) or not amount:
            continue
        if name == GPU_RESOURCE:
            found.append((name, GpuRequest(_count(amount, name), 1000)))
        elif name.startswith(MIG_RESOURCE_PREFIX):
            found.append((name, GpuRequest(_count(amount, name), 1000, profile=profile_of_resource(name))))
    return found if len(found) < 2 else [request for request in found if not request[1].profile]


def _from_annotations(annotations: Mapping[str, str]) -> list[tuple[str, GpuRequest]]:
    if not any(name in annotations for name in _SHARE_ANNOTATIONS):
        return []
    return [*_from_kai(annotations), *_from_trace(annotations)]


def _from_kai(annotations: Mapping[str, str]) -> list[tuple[str, GpuRequest]]:
    found = []
    devices = _whole_number(annotations, KAI_FRACTION_DEVICES, default=1)
    if KAI_FRACTION in annotations:
        found.append((KAI_FRACTION, GpuRequest(devices, _fraction_milli(annotations[KAI_FRACTION]))))
    if KAI_MEMORY in annotations:
        found.append((KAI_MEMORY, GpuRequest(devices, 0, memory_mib=_whole_number(annotations, KAI_MEMORY, default=0))))
    if KAI_FRACTION_DEVICES in annotations and not found:
        raise _annotation_error(
            KAI_FRACTION_DEVICES,
            "has no share to apply to",
            f"add the annotation {KAI_FRACTION} or {KAI_MEMORY}",
        )
    return found


def _from_trace(annotations: Mapping[str, str]) -> list[tuple[str, GpuRequest]]:
    if ALIBABA_MILLI not in annotations and ALIBABA_COUNT not in annotations:
        return []
    if annotations.get(ALIBABA_COUNT) == "0" and annotations.get(ALIBABA_MILLI, "0") == "0":
        return []
    milli = _whole_number(annotations, ALIBABA_MILLI, default=1000)
    count = _whole_number(annotations, ALIBABA_COUNT, default=1)
    if milli > 1000:
        raise _annotation_error(ALIBABA_MILLI, f"{milli} is more than one GPU", "use 1 to 1000")
    return [(ALIBABA_MILLI if ALIBABA_MILLI in annotations else ALIBABA_COUNT, GpuRequest(count, milli))]


def _fraction_milli(text: str) -> int:
    """Thousandths of a GPU, to the nearest, so that three times "0.3333" is one GPU; never rounded to nothing."""
    if not any(digit.isdigit() for digit in text) or not _DECIMAL.fullmatch(text) or len(text) > 64:
        raise _annotation_error(KAI_FRACTION, f"{text[:64]!r} is not a fraction", 'use a decimal such as "0.5"')
    share = Fraction(text if text[0] != "." else "0" + text)
    if not 0 < share <= 1:
        raise _annotation_error(
            KAI_FRACTION,
            f"{text!r} is outside 0 to 1",
            f'use a decimal such as "0.5"; whole GPUs go to {GPU_RESOURCE}',
        )
    return max(1, int(share * 1000 + Fraction(1, 2)))


def _models(annotations: Mapping[str, str]) -> tuple[str, ...]:
    text = annotations.get(ALIBABA_MODEL, "")
    if not text:
        return ()
    return tuple(model for model in text.split("|") if model)


def _agreed(found: list[tuple[str, GpuRequest]], models: tuple[str, ...]) -> GpuRequest | None:
    """The request on which all ways of writing agree; two that differ are an error that names both."""
    if not found:
        return None
    name, request = found[0]
    for other_name, other in found[1:]:
        if other != request:
            raise InputError(
                f"asks for GPUs in two ways at once: {name} and {other_name}",
                path=f"metadata.annotations.{other_name}" if other_name in _SHARE_ANNOTATIONS else "spec.containers",
                remedy="keep one of them; split the work into two pods if it needs both",
            )
    return msgspec.structs.replace(request, models=models) if models else request


def _count(amount: int, name: str) -> int:
    if amount > MAX_DEVICES:
        raise InputError(
            f"{amount} of {name} is more than any node has",
            path="spec.containers",
            remedy=f"use at most {MAX_DEVICES}",
        )
    return amount


def _whole_number(annotations: Mapping[str, str], name: str, *, default: int) -> int:
    text = annotations.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or int(text) == 0:
        raise _annotation_error(name, f"{text[:64]!r} is not a positive whole number", 'use digits only, such as "2"')
    number = int(text)
    if name in (KAI_FRACTION_DEVICES, ALIBABA_COUNT) and number > MAX_DEVICES:
        raise _annotation_error(name, f"{number} is more than any node has", f"use at most {MAX_DEVICES}")
    return number


def _annotation_error(name: str, problem: str, remedy: str) -> InputError:
    return InputError(problem, path=f"metadata.annotations.{name}", remedy=remedy)
