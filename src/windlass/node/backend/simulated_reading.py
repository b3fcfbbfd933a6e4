"""Clocks, temperatures, memory and utilisation of a simulated GPU as functions of time.

`simulated` calls it with the clock's time; the same time gives the same reading. A load that was set explicitly is
used; otherwise each GPU follows a slow wave of its own, so that charts are not flat.
"""

from __future__ import annotations

import math

from windlass.node.backend import protocol
from windlass.node.backend.protocol import Reading
from windlass.node.backend.simulated_boards import GpuBoard
from windlass.node.backend.simulated_state import GpuState
from windlass.sharing.inventory import Gpu, MigInstance

_PERIOD = 600.0
_IDLE_CELSIUS, _HOT_CELSIUS = 31, 74
_RESERVED_MIB = 596
_ALWAYS_ZERO = (
    *(f"DCGM_FI_DEV_{cause}_VIOLATION" for cause in ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT")),
    *(f"DCGM_FI_DEV_{cause}_VIOLATION" for cause in ("LOW_UTIL", "RELIABILITY")),
    *(f"DCGM_FI_DEV_RETIRED_{cause}" for cause in ("SBE", "DBE", "PENDING")),
)
"""Counters that a simulated GPU has and that stay zero."""


def read_gpu(gpu: Gpu, state: GpuState, board: GpuBoard, now: float) -> Reading:
    load = gpu_load(gpu, state, now)
    reading = {**_board_values(gpu, state, board, load, now), **_error_values(state)}
    used = sum(process.memory_mib for process in state.processes)
    reading |= _memory(gpu.memory_mib, used, _RESERVED_MIB)
    if not state.mig_enabled:
        # In MIG mode the driver gives none of these for the whole GPU.
        reading["DCGM_FI_DEV_GPU_UTIL"] = round(100 * load)
        reading["DCGM_FI_DEV_MEM_COPY_UTIL"] = round(60 * load)
        reading["DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"] = 0
        reading["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"] = state.remapped_rows
    if board.has_gpm:
        reading |= _profiling(load)
        reading["DCGM_FI_PROF_NVLINK_TX_BYTES"] = reading["DCGM_FI_PROF_NVLINK_RX_BYTES"] = round(2e9 * load)
    if state.is_licensed is not None:
        reading["DCGM_FI_DEV_VGPU_LICENSE_STATUS"] = int(state.is_licensed)
    return reading


def describe_gpu(gpu: Gpu) -> dict[str, str]:
    """Serial number and firmware versions."""
    return {
        "DCGM_FI_NVML_VERSION": "13.580.159.04",
        "DCGM_FI_DEV_BRAND": "NVIDIA",
        "DCGM_FI_DEV_SERIAL": f"16500240{gpu.index:05d}",
        "DCGM_FI_DEV_VBIOS_VERSION": "96.00.74.00.01",
        "DCGM_FI_DEV_INFOROM_IMAGE_VER": "G520.0200.00.05",
        "DCGM_FI_DEV_OEM_INFOROM_VER": "2.1",
        "DCGM_FI_DEV_ECC_INFOROM_VER": "7.16",
        "DCGM_FI_DEV_POWER_INFOROM_VER": "N/A",
    }


def read_instance(gpu: Gpu, instance: MigInstance, state: GpuState, board: GpuBoard, now: float) -> Reading:
    processes = [process for process in state.processes if process.gpu_instance == instance.gpu_instance]
    reading = dict(_memory(instance.memory_mib, sum(process.memory_mib for process in processes), 16))
    if board.has_gpm:
        load = gpu_load(gpu, state, now + 37 * instance.gpu_instance)
        reading |= _profiling(load)
    return reading


def gpu_load(gpu: Gpu, state: GpuState, now: float) -> float:
    if state.load >= 0:
        return min(1.0, state.load)
    if state.processes:
        return 0.9
    wave = math.sin(2 * math.pi * (now / _PERIOD + gpu.index / 7))
    return max(0.0, round(0.5 * wave, 3))


def _board_values(gpu: Gpu, state: GpuState, board: GpuBoard, load: float, now: float) -> dict[str, float]:
    celsius = round(_IDLE_CELSIUS + (_HOT_CELSIUS - _IDLE_CELSIUS) * load)
    watts = round(board.watts * (0.12 + 0.85 * load), 3)
    clock_factor = 0.5 if state.throttle else 1.0
    return {
        "DCGM_FI_DEV_SM_CLOCK": round(board.sm_clock * clock_factor * (0.17 + 0.83 * min(1.0, 4 * load))),
        "DCGM_FI_DEV_MEM_CLOCK": board.memory_clock,
        "DCGM_FI_DEV_GPU_TEMP": celsius,
        "DCGM_FI_DEV_MEMORY_TEMP": celsius + 6,
        "DCGM_FI_DEV_POWER_USAGE": watts,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": round(now * board.watts * 300),
        "DCGM_FI_DEV_ENC_UTIL": 0,
        "DCGM_FI_DEV_DEC_UTIL": 0,
        protocol.THROTTLE_REASONS: state.throttle,
        protocol.RECOVERY_ACTION: state.recovery_action,
        **(_link_values(state, load, now) if board.links else {}),
    }


def _link_values(state: GpuState, load: float, now: float) -> dict[str, float]:
    return {
        protocol.LINKS_DOWN: state.links_down,
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": round(4e6 * now * load),
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 0,
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 0,
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 0,
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": state.link_errors,
    }


def _error_values(state: GpuState) -> dict[str, float]:
    return {
        **dict.fromkeys(_ALWAYS_ZERO, 0),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": state.pcie_replays,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": state.single_bit_errors,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": state.double_bit_errors,
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": state.single_bit_errors,
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": state.double_bit_errors,
        protocol.ROW_REMAP_PENDING: int(state.remap_pending),
        protocol.ROW_REMAP_FAILURE: int(state.remap_failure),
    }


def _memory(total: int, used: int, reserved: int) -> dict[str, float]:
    return {
        "DCGM_FI_DEV_FB_TOTAL": total,
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_RESERVED": reserved,
        "DCGM_FI_DEV_FB_FREE": max(0, total - used - reserved),
    }


def _profiling(load: float) -> dict[str, float]:
    return {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": load,
        "DCGM_FI_PROF_SM_ACTIVE": round(load * 0.9, 4),
        "DCGM_FI_PROF_SM_OCCUPANCY": round(load * 0.4, 4),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": round(load * 0.5, 4),
        "DCGM_FI_PROF_DRAM_ACTIVE": round(load * 0.6, 4),
        "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.0,
        "DCGM_FI_PROF_PIPE_FP32_ACTIVE": round(load * 0.2, 4),
        "DCGM_FI_PROF_PIPE_FP16_ACTIVE": round(load * 0.1, 4),
        "DCGM_FI_PROF_PCIE_TX_BYTES": round(1e9 * load),
        "DCGM_FI_PROF_PCIE_RX_BYTES": round(2e9 * load),
    }
