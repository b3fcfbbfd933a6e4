"""GPUs as tests need them: plain, cut, or wired."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.sharing.inventory import Driver, Gpu, Inventory, MigInstance

DRIVER = Driver("580.159.04", (13, 0))
MODELS = {
    "A30": ("NVIDIA A30", 24576, (8, 0), "0x20B710DE"),
    "A100-40": ("NVIDIA A100-SXM4-40GB", 40960, (8, 0), "0x20B010DE"),
    "A100-80": ("NVIDIA A100-SXM4-80GB", 81920, (8, 0), "0x20B210DE"),
    "B200": ("NVIDIA B200", 183359, (10, 0), "0x290110DE"),
    "B300": ("NVIDIA B300 SXM6 AC", 275040, (10, 3), "0x318210DE"),
    "GB200": ("NVIDIA GB200", 189471, (10, 0), "0x294110DE"),
    "GB200-189": ("NVIDIA GB200", 193536, (10, 0), "0x294110DE"),
    "GB300": ("NVIDIA GB300", 284208, (10, 3), "0x31C210DE"),
    "GH200-144": ("NVIDIA GH200 144G HBM3e", 146831, (9, 0), "0x234810DE"),
    "H100": ("NVIDIA H100 80GB HBM3", 81559, (9, 0), "0x233010DE"),
    "H100-94": ("NVIDIA H100 NVL", 95830, (9, 0), "0x232110DE"),
    "H100-96": ("NVIDIA GH200 480GB", 97871, (9, 0), "0x234210DE"),
    "H200": ("NVIDIA H200", 143771, (9, 0), "0x233510DE"),
    "T4": ("Tesla T4", 15360, (7, 5), "0x1EB810DE"),
}


def gpu(model: str = "H200", index: int = 0, cuts: Sequence[tuple[str, int]] | None = None, **facts: object) -> Gpu:
    """A GPU; `cuts` are `(profile, start)`, and None means that MIG is off."""
    name, memory, compute, pci_id = MODELS[model]
    plain = Gpu(
        index=index,
        minor=index,
        uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000",
        name=name,
        memory_mib=memory,
        compute=compute,
        bus_id=f"0000:{index:02x}:00.0",
        pci_id=pci_id,
        mig_capable=model != "T4",
    )
    geometry = plain.geometry
    instances = tuple(
        MigInstance(
            uuid=f"MIG-{index:04d}{at:04d}-0000-0000-0000-000000000000",
            index=at,
            gpu_instance=at + 1,
            profile=profile,
            start=start,
            size=next(each.memory_slices for each in geometry.profiles if each.name == profile) if geometry else 0,
        )
        for at, (profile, start) in enumerate(cuts or ())
    )
    fields = {name: getattr(plain, name) for name in plain.__struct_fields__}
    fields |= {
        "mig_enabled": cuts is not None,
        "mig_pending": cuts is not None,
        "instances": instances,
        **facts,
    }
    return Gpu(**fields)


def inventory(*gpus: Gpu) -> Inventory:
    return Inventory(DRIVER, gpus)


def board(count: int = 8, model: str = "H100", islands: int = 1, numa: int = 2) -> Inventory:
    """GPUs on a switch (one island), or in islands of direct links."""
    found = []
    for at in range(count):
        island = at * islands // count
        mates = [other for other in range(count) if other * islands // count == island and other != at]
        switch = 18 if islands == 1 else 0
        peers = tuple(4 if islands > 1 and other in mates else 0 for other in range(count))
        found.append(gpu(model, at, numa=at * numa // count, peers=peers, switch_links=switch))
    return Inventory(DRIVER, tuple(found))
