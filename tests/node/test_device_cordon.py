"""Cordoned devices are not allocated while MIG changes them, and are released however the change ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from tests.node.machines import machine, until
from tests.node.test_plugin import Node

from windlass.node import device_cordon
from windlass.node.device_cordon import CordonRequest, DeviceCordon, cordon_devices

REQUEST_FILE = "device-cordon.json"

GPU = "nvidia.com/gpu"


def gone_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


class TestWord:
    def test_the_plugin_answers_and_the_way_is_free(self, tmp_path: Path) -> None:
        plugin, stop = DeviceCordon(tmp_path), threading.Event()

        def rounds() -> None:
            while not stop.wait(0.01):
                plugin.acknowledge(plugin.requested())

        thread = threading.Thread(target=rounds)
        thread.start()
        try:
            with cordon_devices(tmp_path, frozenset(["GPU-1"])):
                assert plugin.requested() == CordonRequest(os.getpid(), frozenset(["GPU-1"]))
            assert plugin.requested() is None
        finally:
            stop.set()
            thread.join(60)

    def test_nothing_to_hold_back_or_nobody_to_ask_is_no_wait(self, tmp_path: Path) -> None:
        with (
            cordon_devices(tmp_path, frozenset()),
            cordon_devices(tmp_path, frozenset(["GPU-1"]), has_plugin=False),
        ):
            assert not (tmp_path / REQUEST_FILE).exists()

    def test_a_plugin_that_is_not_there_is_not_waited_for_long(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(device_cordon, "ACKNOWLEDGE_TIMEOUT_SECONDS", 0.05)
        with cordon_devices(tmp_path, frozenset(["GPU-1"])):
            assert (tmp_path / REQUEST_FILE).exists()

    def test_an_error_inside_ends_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device_cordon, "ACKNOWLEDGE_TIMEOUT_SECONDS", 0.05)
        with pytest.raises(RuntimeError), cordon_devices(tmp_path, frozenset(["GPU-1"])):
            raise RuntimeError
        assert not (tmp_path / REQUEST_FILE).exists()

    def test_word_of_a_process_that_is_gone_counts_no_longer(self, tmp_path: Path) -> None:
        word = CordonRequest(gone_pid(), frozenset(["GPU-1"]))
        (tmp_path / REQUEST_FILE).write_bytes(msgspec.json.encode(word))
        assert DeviceCordon(tmp_path).requested() is None

    @pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"pid": "x", "uuids": []}'])
    def test_what_can_not_be_read_holds_nothing_back(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / REQUEST_FILE).write_bytes(data)
        assert DeviceCordon(tmp_path).requested() is None


def test_the_kubelet_is_told_and_told_again(tmp_path: Path) -> None:
    node = Node(tmp_path, machine(folder=tmp_path / "machine"))
    node.kubelet.start()
    node.start()
    try:
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8)
        uuids = frozenset(node.ids()[:2])
        with cordon_devices(node.state, uuids):
            until(
                lambda: set(node.kubelet.healthy_devices(GPU)) == set(node.ids()) - uuids,
                20,
                "two are held back",
            )
        until(lambda: len(node.kubelet.healthy_devices(GPU)) == 8, 20, "and back")
        assert not any("MIG layout" in line for line in node.log), "no fault of theirs"
    finally:
        node.stop()
        node.kubelet.stop()
