"""Reports this node's state to the API server: health as Events, devices as node annotations, allocations on pods.

Runs in the sidecar; reads the plugin's journal, the inventory and the kubelet's PodResources. Writes only what has
changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.model.names.windlass import (
    ALLOCATED_DEVICES_ANNOTATION,
    CONTAINER_GPUS_ANNOTATION,
    DEVICE_FAULTS_ANNOTATION,
    DEVICES_LAYOUT_ANNOTATION,
    TOPOLOGY_MANAGER_ANNOTATION,
    UNHEALTHY_DEVICES_ANNOTATION,
)
from windlass.node.backend.protocol import DeviceBackend
from windlass.node.container_runtime import CONTAINER_GPUS_FILE
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.health_journal import HealthJournalEntry, read_journal
from windlass.node.labels.features import device_annotations
from windlass.node.named_configs import read_state_file
from windlass.node.operator_link import encode_faults, fault_reports
from windlass.node.operator_requests import read_held
from windlass.node.preferred_devices import allocated_devices

if TYPE_CHECKING:
    from windlass.node.node_api import NodeApi

PodKey = tuple[str, str]
"""Namespace and name of a pod."""


class Reporter:
    def __init__(
        self,
        backend: DeviceBackend,
        api: NodeApi,
        journal: Path,
        *,
        pods: Callable[[], Mapping[PodKey, Mapping[str, Any]]],
        holders: Callable[[], Mapping[str, Sequence[DeviceHolder]]],
        kubelet_policy: Callable[[], str] = str,
    ) -> None:
        """`kubelet_policy`: of its topology manager; empty if it is not known, and then nothing is said of it."""
        self._kubelet_policy = kubelet_policy
        self._backend = backend
        self._api = api
        self._journal = journal
        self._pods = pods
        self._holders = holders
        # Changes before this process started were reported by its predecessor.
        self._reported = read_journal(journal).last
        self._way = journal.with_name(CONTAINER_GPUS_FILE)
        self._annotated: dict[str, str | None] | None = None
        self._reported_devices: dict[PodKey, str] = {}

    def report(self) -> None:
        journal = read_journal(self._journal)
        for entry in journal.since(self._reported):
            self._create_event(entry)
            self._reported = entry.number
        inventory = self._backend.inventory()
        indices = {gpu.uuid: at for at, gpu in enumerate(inventory.gpus)}
        faults = encode_faults(fault_reports(indices, journal.ailments, journal.unhealthy, journal.actions))
        held = read_held(self._journal.parent)
        self._annotate_node(*device_annotations(inventory, frozenset(journal.unhealthy) | held), faults)
        self._annotate_pods(allocated_devices(inventory, self._holders()))

    def _create_event(self, entry: HealthJournalEntry) -> None:
        change = entry.change
        remedy = f": {change.action}" if change.action else ""
        self._api.create_event(
            reason="GPUHealthy" if change.healthy else "GPUUnhealthy",
            message=f"{change.uuid}: {change.reason}{remedy}",
            warning=not change.healthy,
            now=time.time(),
        )

    def _annotate_node(self, devices: str, unhealthy: str, faults: str) -> None:
        annotations = {
            DEVICES_LAYOUT_ANNOTATION: devices,
            UNHEALTHY_DEVICES_ANNOTATION: unhealthy or None,
            CONTAINER_GPUS_ANNOTATION: read_state_file(self._way) or None,
            DEVICE_FAULTS_ANNOTATION: faults or None,
        }
        policy = self._kubelet_policy()
        if policy:
            annotations[TOPOLOGY_MANAGER_ANNOTATION] = policy
        if self._annotated != annotations:
            self._api.patch_node(annotations=annotations)
            self._annotated = annotations

    def _annotate_pods(self, allocated: Mapping[PodKey, str]) -> None:
        pods = self._pods()
        for key, devices in allocated.items():
            annotations = pods.get(key, {}).get("metadata", {}).get("annotations") or {}
            if key in pods and devices not in (
                annotations.get(ALLOCATED_DEVICES_ANNOTATION),
                self._reported_devices.get(key),
            ):
                self._api.annotate_pod(*key, {ALLOCATED_DEVICES_ANNOTATION: devices})
                self._reported_devices[key] = devices
        self._reported_devices = {key: devices for key, devices in self._reported_devices.items() if key in allocated}
