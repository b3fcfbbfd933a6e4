"""Properties of simulated GPU models that the catalogue does not have. Read by `simulated`."""

from __future__ import annotations

import msgspec

from windlass.model.mig import MigGeometry


class GpuBoard(msgspec.Struct, frozen=True):
    """Hardware properties of one model."""

    device_id: str = "2335"
    multiprocessors: int = 132
    links: int = 0
    sm_clock: int = 1980
    memory_clock: int = 2619
    watts: int = 700
    resets_for_mig: bool = False
    """Whether a change of MIG mode needs a reset (Ampere)."""
    has_gpm: bool = False


_BOARDS = {
    "A100-40": GpuBoard("20B0", 108, 12, 1410, 1215, 400, True),
    "A100-80": GpuBoard("20B2", 108, 12, 1410, 1593, 400, True),
    "A30": GpuBoard("20B7", 56, 4, 1440, 1215, 165, True),
    "H100-80": GpuBoard("2330", 132, 18, 1980, 2619, 700, has_gpm=True),
    "H100-94": GpuBoard("2321", 132, 18, 1980, 2619, 400, has_gpm=True),
    "H100-96": GpuBoard("2342", 132, 18, 1980, 2619, 700, has_gpm=True),
    "H200": GpuBoard("2335", 132, 18, 1980, 3201, 700, has_gpm=True),
    "GH200-144": GpuBoard("2348", 132, 18, 1980, 2619, 700, has_gpm=True),
    "B200": GpuBoard("2901", 148, 18, 1965, 3996, 1000, has_gpm=True),
    "GB200": GpuBoard("2941", 152, 18, 2062, 3996, 1200, has_gpm=True),
    "GB200-189": GpuBoard("2941", 152, 18, 2062, 3996, 1200, has_gpm=True),
    "B300": GpuBoard("3182", 148, 18, 2032, 3996, 1100, has_gpm=True),
    "GB300": GpuBoard("31C2", 152, 18, 2062, 3996, 1400, has_gpm=True),
}
_UNCUT_BOARDS = {
    "NVIDIA-L40S": GpuBoard("26B9", 142, 0, 2520, 9001, 350),
    "NVIDIA-L4": GpuBoard("27B8", 58, 0, 2040, 6251, 72),
    "Tesla-T4": GpuBoard("1EB8", 40, 0, 1590, 5001, 70),
}


def board_of(product: str, geometry: MigGeometry | None) -> GpuBoard:
    if geometry is not None:
        return _BOARDS[geometry.name]
    return _UNCUT_BOARDS.get(product, GpuBoard("2236", 72, 0, 1695, 6251, 150))
