"""Keeps what the exporter reads from the hardware: 30 days of samples in a folder of the node.

`exporter` calls `record` once per collection. Series are named `UUID/FIELD`, since an index or a node's name may mean
another GPU tomorrow; serial number, model and place of each UUID are kept as facts. `windlass node history` reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.exporter.collection_context import MeasuredDevice
from windlass.storage.disk import Disk
from windlass.telemetry.history.folder import DAY_SECONDS
from windlass.telemetry.history.gpu_metrics import SCALES
from windlass.telemetry.history.writer import HistoryWriter

DAYS = 30
FACTS_SECONDS = 3600


class SampleHistory:
    def __init__(
        self, folder: Path, interval: float, node: str, days: int = DAYS, clock: Callable[[], float] = time.time
    ) -> None:
        """Raises an `InputError` if the folder can't be used, or another agent writes there."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            disk = Disk(folder)
            disk.lock()
        except BlockingIOError:
            remedy = "two agents on one node? stop the other one"
            raise InputError("another process writes history there", file=str(folder), remedy=remedy) from None
        except OSError as error:
            raise InputError(f"history can't be written: {error.strerror}", file=str(folder)) from None
        self._writer = HistoryWriter(disk, step_of(interval), days)
        self._node, self._clock = node, clock
        self._told_at = 0.0
        self._told: dict[str, dict[str, str]] = {}

    @property
    def lost_rows(self) -> int:
        return self._writer.lost_rows

    def record(self, devices: Sequence[MeasuredDevice], backend: DeviceBackend) -> None:
        now = self._clock()
        facts = {device.gpu.uuid: self._facts(device, backend) for device in devices if device.instance is None}
        # Now and then again, so that every day that is kept has them.
        is_due = facts != self._told or not 0 <= now - self._told_at < FACTS_SECONDS
        if is_due and self._writer.add_facts(now, facts):
            self._told, self._told_at = facts, now
        row: dict[str, int | None] = {}
        for device in devices:
            row |= _values(device.uuid, device.reading)
        self._writer.append(now, row)

    def close(self) -> None:
        self._writer.close()

    def _facts(self, device: MeasuredDevice, backend: DeviceBackend) -> dict[str, str]:
        known = self._told.get(device.gpu.uuid)
        if known is not None and known["index"] == str(device.gpu.index):
            return known  # asking the driver again would tell the same
        try:
            serial = backend.description(device.gpu.uuid).get("DCGM_FI_DEV_SERIAL", "")
        except DeviceError:
            serial = ""
        return {"serial": serial, "model": device.gpu.name, "node": self._node, "index": str(device.gpu.index)}


def step_of(interval: float) -> int:
    """The seconds of a slot: the interval, or a little more where a day has no whole number of them."""
    step = max(1, round(interval))
    while DAY_SECONDS % step:
        step += 1
    return step


def _values(uuid: str, reading: Mapping[str, float]) -> dict[str, int]:
    return {f"{uuid}/{field}": round(reading[field] * scale) for field, scale in SCALES.items() if field in reading}
