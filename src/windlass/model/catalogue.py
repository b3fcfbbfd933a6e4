"""GPU models that Windlass knows by name: what GPU Feature Discovery calls them, their memory, how MIG cuts them.

`model.fleet` expands short names with it, `model.device` fills in memory where a node has no label for it, and
`sharing.mig` looks up the geometry. A model that is not here works too, as long as its memory is given; it can't
be cut by MIG.
"""

from __future__ import annotations

import re

import msgspec

from windlass.model.mig import GEOMETRIES, MigGeometry


class GpuModel(msgspec.Struct, frozen=True):
    product: str
    """The value of the label `nvidia.com/gpu.product`."""
    memory_mib: int
    """The value of the label `nvidia.com/gpu.memory`."""
    family: str
    compute: str
    """Compute capability, `9.0`."""
    geometry: str = ""
    """Name of its MIG geometry; empty where the GPU has no MIG."""
    aliases: tuple[str, ...] = ()


MODELS = (
    GpuModel(
        "NVIDIA-A100-SXM4-40GB", 40960, "ampere", "8.0", "A100-40", ("A100-40", "A100-40GB", "A100-SXM4-40GB")
    ),
    GpuModel("NVIDIA-A100-PCIE-40GB", 40960, "ampere", "8.0", "A100-40", ("A100-PCIE-40GB",)),
    GpuModel(
        "NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0", "A100-80", ("A100-80", "A100-80GB", "A100-SXM4-80GB")
    ),
    GpuModel("NVIDIA-A100-80GB-PCIe", 81920, "ampere", "8.0", "A100-80", ("A100-80GB-PCIE",)),
    GpuModel("NVIDIA-A30", 24576, "ampere", "8.0", "A30", ("A30",)),
    GpuModel("NVIDIA-A10", 23028, "ampere", "8.6", "", ("A10",)),
    GpuModel("NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", "H100-80", ("H100", "H100-80", "H100-80GB")),
    GpuModel("NVIDIA-H100-PCIe", 81559, "hopper", "9.0", "H100-80", ("H100-PCIE",)),
    GpuModel("NVIDIA-H100-NVL", 95830, "hopper", "9.0", "H100-94", ("H100-NVL",)),
    GpuModel("NVIDIA-GH200-480GB", 97871, "hopper", "9.0", "H100-96", ("GH200",)),
    GpuModel("NVIDIA-H20", 97871, "hopper", "9.0", "H100-96", ("H20",)),
    GpuModel("NVIDIA-H200", 143771, "hopper", "9.0", "H200", ("H200", "H200-141GB")),
    GpuModel("NVIDIA-B200", 183359, "blackwell", "10.0", "B200", ("B200", "B200-180GB")),
    GpuModel("NVIDIA-L40S", 46068, "ada-lovelace", "8.9", "", ("L40S",)),
    GpuModel("NVIDIA-L4", 23034, "ada-lovelace", "8.9", "", ("L4",)),
    GpuModel("Tesla-T4", 15360, "turing", "7.5", "", ("T4",)),
    GpuModel("Tesla-V100-SXM2-16GB", 16384, "volta", "7.0", "", ("V100", "V100-16GB", "V100M16")),
    GpuModel("Tesla-V100-SXM2-32GB", 32768, "volta", "7.0", "", ("V100-32GB", "V100M32")),
    GpuModel("Tesla-P100-PCIE-16GB", 16384, "pascal", "6.0", "", ("P100",)),
)

_BY_GEOMETRY = {geometry.name: geometry for geometry in GEOMETRIES}
_BY_NAME = {name.upper(): model for model in MODELS for name in (model.product, *model.aliases)}


def find_model(name: str) -> GpuModel | None:
    """By product label or short name, in any case; the `-SHARED` of a shared GPU's label is looked through."""
    return _BY_NAME.get(name.upper().removesuffix("-SHARED"))


def geometry_of_model(model: str, memory_mib: int = 0) -> MigGeometry | None:
    """How a GPU of this model can be cut; None where it can't or is not known.

    A product name that is not in the catalogue is recognised by its generation and its memory.
    """
    known = find_model(model)
    if known is not None:
        return _BY_GEOMETRY.get(known.geometry)
    words = model.upper().replace("-", " ").split()
    gigabytes = -(-memory_mib // 1024)
    for geometry in GEOMETRIES:
        if geometry.name.split("-")[0] in words and geometry.profiles[-1].name.endswith(f".{gigabytes}gb"):
            return geometry
    return None


def product_label(name: str) -> str:
    """A free-form model name as GPU Feature Discovery would write it into a label."""
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split())
