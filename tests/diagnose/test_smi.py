"""`nvidia-smi`'s table and report, as somebody reads them who looks for what is wrong."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import ended, evidence, node, pod

from windlass.diagnose.nvidia_smi import describe_problems
from windlass.diagnose.why import why

TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                  ECC |
| N/A   30C    P0             63W /  400W |       0MiB /  81920MiB |      0%      Default |
|                                         |                        |             MODE     |
+-----------------------------------------+------------------------+----------------------+
"""
REPORT = """\
==============NVSMI LOG==============
Attached GPUs                             : 1
GPU 00000000:07:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : CURRENT
        Pending                           : PENDING
    Fabric
        State                             : STATE
        Status                            : N/A
    ECC Errors
        Volatile
            SRAM Correctable              : 4
            DRAM Uncorrectable            : COUNT
    Remapped Rows
        Correctable Error                 : 0
        Remapping Failure Occurred        : FAILED
"""
WELL = {"CURRENT": "Disabled", "PENDING": "Disabled", "STATE": "Completed", "COUNT": "0", "FAILED": "No"}


def report(**differs: str) -> list[str]:
    text = REPORT
    for name, value in (WELL | differs).items():
        text = text.replace(name, value)
    return text.splitlines()


def table(ecc: str = "0", mode: str = "Disabled") -> list[str]:
    return TABLE.replace("  ECC |", f"{ecc:>5} |").replace("MODE    ", f"{mode:<8}").splitlines()


def test_where_nothing_is_wrong_nothing_is_said() -> None:
    assert describe_problems(table()) == []
    assert describe_problems(table(ecc="N/A")) == []
    assert describe_problems(report()) == []
    assert describe_problems(["", "garbage | ", "Failed to initialize NVML"]) == []


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (table(ecc="3"), "GPU_HW_FAULT"),
        ([*table(), "|ERR!  ERR!  ERR!   N/A / N/A |"], "GPU_HW_FAULT"),
        (table(mode="Enabled*"), "MIG_CONFIG_NOT_APPLIED"),
        (report(STATE="In Progress"), "FABRIC_NOT_READY"),
        (report(COUNT="2"), "GPU_HW_FAULT"),
        (report(FAILED="Yes"), "GPU_HW_FAULT"),
        (report(PENDING="Enabled"), "MIG_CONFIG_NOT_APPLIED"),
        (report(), "APP_ERROR"),
    ],
)
def test_what_the_host_says_explains_a_program_that_fails(lines: list[str], code: str) -> None:
    known = evidence([node("g1", 1), ended()], {"team/asked": "it did not work"})
    known.add_host_log("g1", "nvidia-smi", lines)
    assert why(known, "pod/asked", "", 0).code == code


def test_what_nvidia_smi_says_inside_a_container_that_runs_is_a_finding() -> None:
    known = evidence([node("g1", 1), pod("asked", 1, on="g1")])
    known.add_pod_log("team", "asked", "main.nvidia-smi", table())
    assert why(known, "pod/asked", "", 0).code == "NONE"
    known.add_pod_log("team", "asked", "main.nvidia-smi", ["Failed to initialize NVML: Unknown Error"])
    assert why(known, "pod/asked", "", 0).code == "CGROUP_DEVICE_ACCESS_LOST"
    known.add_pod_log("team", "asked", "main.nvidia-smi", table(ecc="7"))
    assert why(known, "pod/asked", "", 0).code == "GPU_HW_FAULT"
