"""A program's own log: full disks by their volume, memory in other words, and what a ready pod has survived."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.objects import ask, ended, node, pod

from windlass.model.unstructured import Unstructured

HERE = node("g1", 4)
SINCE = "2026-03-01T09:00:00Z"


def died(log: str, **more: Any) -> Any:
    return ask("pod/asked", HERE, ended(**more), logs={"team/asked": log})


def mounting(claim: str) -> Unstructured:
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    return {"containers": [container], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def test_the_claim_whose_volume_is_full_is_named() -> None:
    found = died("OSError: [Errno 28] No space left on device: '/data/ckpt/9.pt'", spec=mounting("models"))
    assert found.code == "STORAGE_INSUFFICIENT"
    assert "he volume of claim models, mounted at /data, is full (/data/ckpt/9.pt)" in found.headline


def test_elsewhere_it_is_the_disk_of_the_container() -> None:
    found = died("write /database/x: no space left on device", spec=mounting("models"))
    assert found.code == "EPHEMERAL_STORAGE"


def test_full_shared_memory_is_no_full_disk() -> None:
    assert died("failed to extend /dev/shm/nccl-1: No space left on device").code == "SHM_TOO_SMALL"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.", "GPU_OOM"),
        ("NCCL WARN Cuda failure 2 'out of memory'", "GPU_OOM"),
        ("cudaMalloc failed: out of memory", "GPU_OOM"),
        ("torch.OutOfMemoryError: HIP out of memory.", "GPU_OOM"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.", "CONTAINER_OOM"),
        ("1 Workers (tasks / actors) killed due to memory pressure (OOM)", "CONTAINER_OOM"),
        ("slurmstepd: out of memory", "APP_ERROR"),
    ],
)
def test_memory_of_the_gpu_and_of_the_container_in_the_words_of_many_programs(line: str, code: str) -> None:
    assert died(line).code == code


def serving(log: str) -> Any:
    container = {"name": "main", "ready": True, "state": {"running": {"startedAt": SINCE}}}
    return ask(
        "pod/asked",
        HERE,
        pod("asked", 1, on="g1", status={"containerStatuses": [container]}),
        logs={"team/asked": log},
    )


WARNED = "WARNING: CUDA out of memory for batch size 512, falling back to 256"


def test_what_a_ready_pod_has_survived_is_no_fault() -> None:
    assert serving(f"{WARNED}\nApplication startup complete.").code == "NONE"


def test_what_it_said_last_may_be_one() -> None:
    assert serving(f"Application startup complete.\n{WARNED}").code == "GPU_OOM"


def test_what_slows_a_program_is_not_survived() -> None:
    assert serving("NCCL INFO NET/IB : No device found.\nstep 9 done").code == "NCCL_TRANSPORT_FALLBACK"
