"""Machines with NVIDIA GPUs that the agent refuses by name: WSL, Tegra boards, GPUs that virtual machines have.

`agent.make_backend` asks before it opens NVML, whose own error would say that there is no driver.
"""

from __future__ import annotations

from windlass.node.host_root import HostRoot

VFIO = "vfio-pci"
"""The kernel module that hands a GPU to a virtual machine."""
_WSL, _CONTROL = "/dev/dxg", "/dev/nvidiactl"
_SOC_FAMILY, _TEGRA_RELEASE = "/sys/devices/soc0/family", "/etc/nv_tegra_release"


def unsupported_machine(host: HostRoot) -> str:
    """Why the agent can't serve this machine; empty if it can."""
    if host.exists(_CONTROL):
        return ""
    if host.exists(_WSL):
        return f"this is WSL, whose GPUs are behind {_WSL}: it is not supported"
    if host.read(_SOC_FAMILY) == "Tegra" or host.host_file(_TEGRA_RELEASE).exists():
        return "this is a Tegra board, whose GPU has no NVML: it is not supported"
    gpus = host.pci_gpus()
    if gpus and all(gpu.driver == VFIO for gpu in gpus):
        return f"virtual machines have the GPUs ({', '.join(gpu.bus_id for gpu in gpus)} by {VFIO}): not supported"
    return ""
