"""Virtual GPUs: found by what their PCI configuration space says, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.node.host_root import HostRoot
from windlass.node.labels.vgpu import (
    HostDriver,
    VirtualGpus,
    find_virtual_gpus,
    host_driver,
    vendor_capability,
)

POWER, MESSAGES, VENDOR = 0x01, 0x05, 0x09


def record(kind: int, content: bytes) -> bytes:
    return bytes([kind, len(content) + 2]) + content


def host(version: str, branch: str) -> bytes:
    return record(0, version.encode().ljust(10, b"\0") + branch.encode().ljust(10, b"\0"))


def virtual(*records: bytes) -> bytes:
    """The body of a vendor-specific capability, behind its three bytes of header."""
    return b"VF" + b"".join(records)


def space(*capabilities: tuple[int, bytes], has_list: bool = True, loop: bool = False) -> bytes:
    """A configuration space with these capabilities, chained in their order."""
    data = bytearray(256)
    data[0:2] = (0x10DE).to_bytes(2, "little")
    data[0x06] = 0x10 if has_list else 0
    at = data[0x34] = 0x60
    for number, (kind, body) in enumerate(capabilities):
        is_last = number == len(capabilities) - 1
        size = 3 + len(body)
        following = (0x60 if loop else 0) if is_last else at + size
        data[at : at + size] = bytes([kind, following, size]) + body
        at += size
    return bytes(data)


A_VGPU = space((POWER, b"\1\2"), (VENDOR, virtual(host("535.161", "r535_00"))))
PASSED_THROUGH = space((MESSAGES, b"\0" * 12), (VENDOR, b"\1" + b"\0" * 16))


class TestSpace:
    def test_the_host_driver_is_in_its_record(self) -> None:
        assert host_driver(A_VGPU) == HostDriver("535.161", "r535_00")

    def test_other_records_may_come_first(self) -> None:
        found = space((VENDOR, virtual(record(3, b"abc"), record(7, b""), host("550.54", "r550_00"))))
        assert host_driver(found) == HostDriver("550.54", "r550_00")

    def test_a_gpu_that_is_passed_through_is_a_real_one(self) -> None:
        assert len(vendor_capability(PASSED_THROUGH)) == 20
        assert host_driver(PASSED_THROUGH) is None

    def test_a_virtual_one_that_names_no_driver_is_still_virtual(self) -> None:
        assert host_driver(space((VENDOR, virtual(record(4, b"xx"))))) == HostDriver()
        assert host_driver(space((VENDOR, virtual(record(0, b"short"))))) == HostDriver()

    @pytest.mark.parametrize(
        "found",
        [
            b"",
            A_VGPU[:64],
            space((POWER, b""), loop=True),
            space((0xFF, b""), (VENDOR, virtual(host("1", "r")))),
            space((VENDOR, virtual(host("1", "r"))), has_list=False),
            space((VENDOR, b"")),
        ],
    )
    def test_a_list_that_is_short_broken_or_not_there_says_nothing(self, found: bytes) -> None:
        assert host_driver(found) is None

    @given(st.binary(min_size=0, max_size=300))
    def test_any_bytes_are_read_without_a_crash(self, found: bytes) -> None:
        host_driver(found)

    @given(st.integers(0, 255), st.integers(0, 255))
    def test_so_is_a_good_space_with_a_wrong_byte(self, at: int, value: int) -> None:
        host_driver(A_VGPU[:at] + bytes([value]) + A_VGPU[at + 1 :])


def pci(root: Path, number: int, config: bytes | None, vendor: str = "0x10de") -> None:
    folder = root / f"sys/bus/pci/devices/0000:{number:02x}:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text("0x030200\n")
    if config is not None:
        (folder / "config").write_bytes(config)


class TestMachine:
    def labels(self, folder: Path, *configs: bytes | None) -> dict[str, str]:
        for number, config in enumerate(configs):
            pci(folder, number, config)
        return find_virtual_gpus(HostRoot(folder)).labels()

    def test_real_gpus(self, tmp_path: Path) -> None:
        assert self.labels(tmp_path, PASSED_THROUGH, PASSED_THROUGH) == {"vgpu.present": "false"}

    def test_one_virtual_gpu_among_others(self, tmp_path: Path) -> None:
        assert self.labels(tmp_path, PASSED_THROUGH, A_VGPU) == {
            "vgpu.present": "true",
            "vgpu.host-driver-version": "535.161",
            "vgpu.host-driver-branch": "r535_00",
        }

    def test_without_the_privilege_nobody_knows_and_nothing_is_said(self, tmp_path: Path) -> None:
        assert self.labels(tmp_path, PASSED_THROUGH[:64]) == {}

    def test_other_peoples_cards_are_not_asked(self, tmp_path: Path) -> None:
        pci(tmp_path, 9, A_VGPU, vendor="0x8086")
        assert self.labels(tmp_path, None) == {"vgpu.present": "false"}

    def test_a_machine_without_such_files_has_none(self, tmp_path: Path) -> None:
        assert find_virtual_gpus(HostRoot(tmp_path)) == VirtualGpus(True)
