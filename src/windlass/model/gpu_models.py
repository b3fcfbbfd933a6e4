"""GPU models that Windlass knows by name: what GPU Feature Discovery calls them, their memory, how MIG cuts them.

`model.fleet` expands short names with it, `model.device` fills in memory where a node has no label for it, and
`sharing.mig` looks up the geometry. A model that is not here works too, as long as its memory is given; it can't
be cut by MIG.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from windlass.model.mig import GEOMETRIES, MigGeometry


class GpuModel(msgspec.Struct, frozen=True):
    product: str
    """The value of the label `nvidia.com/gpu.product`."""
    memory_mib: int
    """The value of the label `nvidia.com/gpu.memory`."""
    family: str
    compute_capability: str
    """Compute capability, `9.0`."""
    geometry: str = ""
    """Name of its MIG geometry; empty where the GPU has no MIG."""
    aliases: tuple[str, ...] = ()


GPU_MODELS = (
    GpuModel("NVIDIA-A100-SXM4-40GB", 40960, "ampere", "8.0", "A100-40", ("A100-40", "A100-40GB", "A100-SXM4-40GB")),
    GpuModel("NVIDIA-A100-PCIE-40GB", 40960, "ampere", "8.0", "A100-40", ("A100-PCIE-40GB",)),
    GpuModel("NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0", "A100-80", ("A100-80", "A100-80GB", "A100-SXM4-80GB")),
    GpuModel("NVIDIA-A100-80GB-PCIe", 81920, "ampere", "8.0", "A100-80", ("A100-80GB-PCIE",)),
    GpuModel("NVIDIA-A30", 24576, "ampere", "8.0", "A30", ("A30",)),
    GpuModel("NVIDIA-A10", 23028, "ampere", "8.6", "", ("A10",)),
    GpuModel("NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", "H100-80", ("H100", "H100-80", "H100-80GB")),
    GpuModel("NVIDIA-H100-PCIe", 81559, "hopper", "9.0", "H100-80", ("H100-PCIE",)),
    GpuModel("NVIDIA-H100-NVL", 95830, "hopper", "9.0", "H100-94", ("H100-NVL",)),
    GpuModel("NVIDIA-GH200-480GB", 97871, "hopper", "9.0", "H100-96", ("GH200",)),
    GpuModel("NVIDIA-H20", 97871, "hopper", "9.0", "H100-96", ("H20",)),
    GpuModel("NVIDIA-H200", 143771, "hopper", "9.0", "H200", ("H200", "H200-141GB")),
    GpuModel("NVIDIA-GH200-144G-HBM3e", 146831, "hopper", "9.0", "GH200-144", ("GH200-144", "GH200-144GB")),
    GpuModel("NVIDIA-B200", 183359, "blackwell", "10.0", "B200", ("B200", "B200-180GB")),
    GpuModel("NVIDIA-GB200", 189471, "blackwell", "10.0", "GB200", ("GB200", "GB200-186GB")),
    GpuModel("NVIDIA-B300-SXM6-AC", 275040, "blackwell", "10.3", "B300", ("B300", "B300-269GB")),
    GpuModel("NVIDIA-GB300", 284208, "blackwell", "10.3", "GB300", ("GB300", "GB300-278GB")),
    GpuModel("NVIDIA-L40S", 46068, "ada-lovelace", "8.9", "", ("L40S",)),
    GpuModel("NVIDIA-L4", 23034, "ada-lovelace", "8.9", "", ("L4",)),
    GpuModel("Tesla-T4", 15360, "turing", "7.5", "", ("T4",)),
    GpuModel("Tesla-V100-SXM2-16GB", 16384, "volta", "7.0", "", ("V100", "V100-16GB", "V100M16")),
    GpuModel("Tesla-V100-SXM2-32GB", 32768, "volta", "7.0", "", ("V100-32GB", "V100M32")),
    GpuModel("Tesla-P100-PCIE-16GB", 16384, "pascal", "6.0", "", ("P100",)),
)

_BY_GEOMETRY = {geometry.name: geometry for geometry in GEOMETRIES}
_BY_NAME = {name.upper(): model for model in GPU_MODELS for name in (model.product, *model.aliases)}


def find_gpu_model(name: str) -> GpuModel | None:
    """By product label or short name, in any case; the `-SHARED` of a shared GPU's label is looked through."""
    return _BY_NAME.get(name.upper().removesuffix("-SHARED"))


@lru_cache(maxsize=1024)
def mig_geometry_of_model(model: str, memory_mib: int = 0) -> MigGeometry | None:
    """How a GPU of this model can be cut; None where it can't or is not known.

    Generation and memory decide, so a product that is not in the catalogue is recognised too, and one that is sold in
    two sizes under one name (GB200) is told apart; without a memory that fits, the catalogue's word counts.
    """
    words = model.upper().replace("-", " ").split()
    gigabytes = -(-memory_mib // 1024)
    for geometry in GEOMETRIES:
        if geometry.name.split("-")[0] in words and geometry.profiles[-1].name.endswith(f".{gigabytes}gb"):
            return geometry
    known = find_gpu_model(model)
    return _BY_GEOMETRY.get(known.geometry) if known is not None else None


def product_label(name: str) -> str:
    """A free-form model name as GPU Feature Discovery would write it into a label."""
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split())
