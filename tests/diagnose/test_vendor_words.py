"""Words of programs, runtimes, plugins and kernels of several vendors, each with the layer that they are about."""

from __future__ import annotations

import pytest
from tests.diagnose.causal_scenes import PRESENT, crashing
from tests.diagnose.objects import ask, ended, node, pod
from tests.diagnose.test_words_of_the_node import uncreated

PROGRAM = {
    "the provided PTX was compiled with an unsupported toolchain.": "CUDA_DRIVER_TOO_OLD",
    "OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'": "SHM_TOO_SMALL",
    "RuntimeError: No HIP GPUs are available": "RUNTIME_NOT_CONFIGURED",
    "hipErrorNoDevice: no ROCm-capable device is detected": "RUNTIME_NOT_CONFIGURED",
    "Unable to open /dev/kfd read-write: Permission denied": "DEVICE_PERMISSION",
    "cannot open /dev/infiniband/uverbs0: Operation not permitted": "DEVICE_PERMISSION",
    "OOM when allocating tensor with shape[64,256]": "GPU_OOM",
    "CUDA error: device-side assert triggered": "APP_ERROR",
    "cannot open /app/data: Operation not permitted": "APP_ERROR",
}
RUNTIME = {
    "nvidia-container-cli: device error: 3: unknown device": "DEVICE_ID_STALE",
    "nvidia-container-cli: initialization error: nvml error: driver not loaded": "DRIVER_MISSING",
    "container init was OOM-killed (memory limit too low?)": "CONTAINER_OOM",
}
KERNEL = {
    "nvidia: version magic '5.15.0-91' should be '5.15.0-94'": "DRIVER_MISSING",
    "nvidia: Unknown symbol mutex_lock (err -2)": "DRIVER_MISSING",
    "Lockdown: insmod: unsigned module loading is restricted": "DRIVER_MISSING",
    "a driver such as nouveau was loaded and obtained ownership of the NVIDIA device(s).": "DRIVER_MISSING",
    "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0": "GPU_HW_FAULT",
    "pcieport 0000:3a:00.0: AER: Uncorrected (Non-Fatal) error received: 0000:3b:00.0": "DEVICE_PLUGIN_FAILING",
    "nvidia: module verification failed: signature missing - tainting kernel": "DEVICE_PLUGIN_FAILING",
}


@pytest.mark.parametrize(("line", "code"), PROGRAM.items())
def test_words_of_programs(line: str, code: str) -> None:
    assert ask("pod/asked", node("g1", 4), ended(), logs={"team/asked": line}).code == code


@pytest.mark.parametrize(("line", "code"), RUNTIME.items())
def test_words_of_runtimes(line: str, code: str) -> None:
    assert ask("pod/asked", node("g1", 4), uncreated(line)).code == code


@pytest.mark.parametrize(("line", "code"), KERNEL.items())
def test_words_of_kernels_behind_a_plugin_that_crashes(line: str, code: str) -> None:
    parts = (crashing("nvidia-device-plugin-daemonset-7", "g1"), pod("asked", 1))
    assert ask("pod/asked", node("g1", labels=PRESENT), *parts, hosts={"g1": line}).code == code
