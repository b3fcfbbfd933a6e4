"""Detects virtual GPUs, and the driver of the hypervisor below.

Used for the labels. A virtual GPU has a vendor-specific PCI capability that begins with "VF", in which one record
holds the version and branch of the host's driver. Without privileges only the first 64 bytes can be read, and then
the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.node.host_root import HostRoot

WHOLE_SPACE = 256
_STATUS, _HAS_LIST, _FIRST = 0x06, 0x10, 0x34
_VENDOR_SPECIFIC, _BROKEN = 0x09, 0xFF
_SIGNATURE = b"VF"
_RECORDS_AT, _TEXT_BYTES = 5, 10
_HOST_DRIVER = 0


class HostDriver(msgspec.Struct, frozen=True):
    """The hypervisor's driver; empty if the GPU is virtual and does not say."""

    version: str = ""
    branch: str = ""


class VirtualGpus(msgspec.Struct, frozen=True):
    is_known: bool
    """Whether the whole configuration space of every GPU could be read."""
    host: HostDriver | None = None
    """None if no GPU is virtual."""

    def labels(self) -> dict[str, str]:
        """No labels if unknown: a wrong `false` would be worse."""
        if self.host is None:
            return {"vgpu.present": "false"} if self.is_known else {}
        found = {"vgpu.present": "true"}
        if self.host.version:
            found["vgpu.host-driver-version"] = self.host.version
            found["vgpu.host-driver-branch"] = self.host.branch
        return found


def find_virtual_gpus(root: HostRoot) -> VirtualGpus:
    """Checks the NVIDIA GPUs on the PCI bus."""
    spaces = [space for gpu in root.pci_gpus() if (space := root.pci_config(gpu.bus_id))]
    hosts = [host for space in spaces if (host := host_driver(space)) is not None]
    known = all(len(space) >= WHOLE_SPACE for space in spaces)
    return VirtualGpus(known, hosts[-1] if hosts else None)


def host_driver(space: bytes) -> HostDriver | None:
    """The host's driver from a configuration space; None if the GPU is not virtual."""
    capability = vendor_capability(space)
    if capability[3:_RECORDS_AT] != _SIGNATURE:
        return None
    for kind, body in _records(capability):
        if kind == _HOST_DRIVER and len(body) >= 2 * _TEXT_BYTES:
            return HostDriver(_text(body[:_TEXT_BYTES]), _text(body[_TEXT_BYTES : 2 * _TEXT_BYTES]))
    return HostDriver()


def vendor_capability(space: bytes) -> bytes:
    """The first vendor-specific capability, header included; empty if there is none or the list is broken."""
    if len(space) < WHOLE_SPACE or not space[_STATUS] & _HAS_LIST:
        return b""
    at, seen = space[_FIRST], set[int]()
    while at and at not in seen and at + 2 < len(space) and space[at] != _BROKEN:
        seen.add(at)
        if space[at] == _VENDOR_SPECIFIC:
            return space[at : at + space[at + 2]]
        at = space[at + 1]
    return b""


def _records(capability: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each record: one byte kind, one byte length (both included), content."""
    at = _RECORDS_AT
    while at + 1 < len(capability) and capability[at + 1] >= 2:
        yield capability[at], capability[at + 2 : at + capability[at + 1]]
        at += capability[at + 1]


def _text(raw: bytes) -> str:
    return raw.decode("ascii", "replace").strip("\0 ")
