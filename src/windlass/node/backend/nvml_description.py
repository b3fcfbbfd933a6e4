"""Texts about a GPU through NVML, under DCGM's names: serial number, brand, firmware versions.

`nvml.NvmlBackend` reads them once per GPU, since they never change; the exporter uses them as labels.
"""

from __future__ import annotations

from typing import Any

import pynvml as nv

from windlass.node.backend.nvml_calls import decode_text, try_call

_BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}


def describe_gpu(handle: Any) -> dict[str, str]:
    """What the driver answers; the rest is left out."""
    found = {
        "DCGM_FI_NVML_VERSION": try_call(nv.nvmlSystemGetNVMLVersion),
        "DCGM_FI_DEV_BRAND": _BRANDS.get(try_call(nv.nvmlDeviceGetBrand, handle)),
        "DCGM_FI_DEV_SERIAL": try_call(nv.nvmlDeviceGetSerial, handle),
        "DCGM_FI_DEV_VBIOS_VERSION": try_call(nv.nvmlDeviceGetVbiosVersion, handle),
        "DCGM_FI_DEV_INFOROM_IMAGE_VER": try_call(nv.nvmlDeviceGetInforomImageVersion, handle),
        "DCGM_FI_DEV_OEM_INFOROM_VER": try_call(nv.nvmlDeviceGetInforomVersion, handle, nv.NVML_INFOROM_OEM),
        "DCGM_FI_DEV_ECC_INFOROM_VER": try_call(nv.nvmlDeviceGetInforomVersion, handle, nv.NVML_INFOROM_ECC),
        "DCGM_FI_DEV_POWER_INFOROM_VER": try_call(nv.nvmlDeviceGetInforomVersion, handle, nv.NVML_INFOROM_POWER),
    }
    return {name: decode_text(text) for name, text in found.items() if text}
