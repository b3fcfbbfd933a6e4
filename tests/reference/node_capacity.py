"""Free resources and devices of one node, one pod and one device at a time.

Written from the documentation of the rules; shares only the structs with the fast implementation.
"""

from __future__ import annotations

import copy
import json

GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
MEMORY = {"NVIDIA-H100-80GB-HBM3": 81559, "NVIDIA-A100-SXM4-40GB": 40960, "Tesla-T4": 15360}
# Profile → (slices, where it may start), from NVIDIA's tables for these two GPUs.
ONE, WIDE, TWO, THREE, FOUR, ALL = (
    (1, range(7)),
    (2, (0, 2, 4, 6)),
    (2, (0, 2, 4)),
    (4, (0, 4)),
    (4, (0,)),
    (8, (0,)),
)
PROFILES = {
    "NVIDIA-H100-80GB-HBM3": {
        "1g.10gb": ONE,
        "1g.20gb": WIDE,
        "2g.20gb": TWO,
        "3g.40gb": THREE,
        "4g.40gb": FOUR,
        "7g.80gb": ALL,
    },
    "NVIDIA-A100-SXM4-40GB": {
        "1g.5gb": ONE,
        "1g.10gb": WIDE,
        "2g.10gb": TWO,
        "3g.20gb": THREE,
        "4g.20gb": FOUR,
        "7g.40gb": ALL,
    },
}
MOST_GPUS = 16
"""Of one machine."""
MOST_INSTANCES, MOST_SHARES = 8, 15
"""Documented limits for one pod: MIG instances created on demand, replicas of one device."""


def number(text):
    """Parses the forms of quantity that these tests use."""
    text = str(text)
    if text.endswith("Gi"):
        return int(text[:-2]) * 2**30
    return int(text[:-1]) if text.endswith("m") else int(text)


def amounts(raw):
    """In base units: cpu in thousandths."""
    return {
        key: number(value) * (1000 if key == "cpu" and not str(value).endswith("m") else 1)
        for key, value in raw.items()
    }


def requests_of(pod):
    total = {"pods": 1}
    for container in pod.spec.containers:
        for key, amount in amounts(container.resources.limits).items():
            total[key] = total.get(key, 0) + amount
    return {key: amount for key, amount in total.items() if amount}


class GpuDemand:
    """The GPU request of a pod."""

    def __init__(self, pod):
        notes, asked = pod.metadata.annotations, requests_of(pod)
        self.count, self.milli, self.memory, self.profile = 0, 0, 0, ""
        if GPU in asked:
            self.count, self.milli = asked[GPU], 1000
        for key, amount in asked.items():
            if key.startswith(MIG_PREFIX):
                self.count, self.profile = amount, key.removeprefix(MIG_PREFIX)
        if "gpu-fraction" in notes:
            self.milli = round(1000 * float(notes["gpu-fraction"]))
        if "gpu-memory" in notes:
            self.memory = int(notes["gpu-memory"])
        if "gpu-fraction" in notes or "gpu-memory" in notes:
            self.count = int(notes.get("gpu-fraction-num-devices", 1))
        models = notes.get("alibabacloud.com/gpu-card-model", "")
        self.models = models.split("|") if models else None

    def allows(self, device):
        return self.models is None or device.model in self.models


class Device:
    def __init__(self, model, memory, mig, island):
        self.model, self.memory, self.mig, self.island = model, memory, mig, island
        self.healthy, self.free, self.used = True, 0 if mig else 1000, set()

    def slices(self, profile, start):
        width, _ = PROFILES[self.model][profile]
        return set(range(start, start + width))

    def starts(self, profile):
        """Slices where an instance of the profile could start now."""
        if self.mig != "dynamic" or not self.healthy or profile not in PROFILES.get(self.model, {}):
            return []
        return [at for at in PROFILES[self.model][profile][1] if not self.used & self.slices(profile, at)]


class NodeCapacity:
    """What is free on one node."""

    def __init__(self, node):
        self.node = node
        self.free = amounts(node.status.allocatable)
        labels = node.metadata.labels
        shared = labels.get("nvidia.com/gpu.sharing-strategy", "none") != "none"
        self.replicas = int(labels.get("nvidia.com/gpu.replicas", 1)) if shared else 1
        self.devices = self._devices(node)
        self._mark_unhealthy(node)

    def copy(self):
        """The same room once more, to be taken from."""
        made = copy.copy(self)
        made.free, made.devices = dict(self.free), [copy.copy(device) for device in self.devices]
        for device in made.devices:
            device.used = set(device.used)
        return made

    def _devices(self, node):
        layout = node.metadata.annotations.get("windlass.dev/devices-layout")
        if layout:
            return [
                Device(
                    group["model"],
                    group.get("memory") or MEMORY.get(group["model"], 0),
                    group.get("mig", ""),
                    group.get("island", 0),
                )
                for group in json.loads(layout)
                for _ in range(group["count"])
            ]
        labels, capacity = node.metadata.labels, amounts(node.status.capacity)
        model = labels.get("nvidia.com/gpu.product", "")
        whole = capacity.get(GPU, 0) // self.replicas
        cut = 0
        if capacity.get("nvidia.com/gpu.shared") or labels.get("nvidia.com/mig.strategy") == "mixed":
            cut = int(labels["nvidia.com/gpu.count"]) - whole
        kinds = ["" for _ in range(whole)] + ["static" for _ in range(cut)]
        return [Device(model, MEMORY.get(model, 0), kind, 0) for kind in kinds]

    def _mark_unhealthy(self, node):
        named = node.metadata.annotations.get("windlass.dev/unhealthy-devices", "")
        ill = {int(index) for index in named.split(",") if index}
        lost = amounts(node.status.capacity).get(GPU, 0) - amounts(node.status.allocatable).get(GPU, 0)
        for index in range(len(self.devices) - 1, -1, -1):
            if len(ill) < lost // self.replicas:
                ill.add(index)
        for index in ill:
            self.devices[index].healthy, self.devices[index].free = False, 0

    # Filters

    def reasons(self, pod):
        why, demand = set(), GpuDemand(pod)
        on_demand = bool(demand.profile) and self._creates_instances()
        for key, amount in requests_of(pod).items():
            if amount > self.free.get(key, 0) and not (on_demand and key == MIG_PREFIX + demand.profile):
                why.add("INSUFFICIENT_PODS" if key == "pods" else f"INSUFFICIENT_{key}")
        if demand.profile:
            if on_demand and not self._instances_fit(demand):
                why.add("MIG_NO_ROOM")
        elif demand.count:
            why |= self._device_reasons(demand)
        return why

    def _creates_instances(self):
        return any(d.mig == "dynamic" and d.healthy and d.model in PROFILES for d in self.devices)

    def _instances_fit(self, demand):
        copies = sum(
            len(_largest_set_of_starts(device, demand.profile)) for device in self.devices if demand.allows(device)
        )
        return demand.count <= min(copies, MOST_INSTANCES)

    def _device_reasons(self, demand):
        if len(self.devices) > MOST_GPUS and (demand.milli < 1000 or demand.memory):
            return {"GPU_UNLABELLED"}  # replicas, of nobody knows which GPUs
        allowed = [device for device in self.devices if demand.allows(device)]
        if self.devices and not allowed:
            return {"GPU_MODEL"}
        large = [device for device in allowed if self.need(demand, device) <= 1000]
        if allowed and not large:
            return {"GPU_MEMORY"}
        room = sum(self.copies(demand, device, device.free) for device in large if device.healthy)
        if room >= demand.count:
            return set()
        if_repaired = room + sum(self.copies(demand, device, 1000) for device in large if not device.healthy)
        return {"GPU_UNHEALTHY"} if if_repaired >= demand.count else {"GPU_DEVICE_ROOM"}

    def need(self, demand, device):
        """Thousandths of the device that one of the pod's GPUs takes."""
        if demand.memory:
            return -(-1000 * demand.memory // device.memory) if device.memory else 10**9
        if demand.milli == 1000:
            return 1000 // self.replicas
        return demand.milli

    def copies(self, demand, device, free):
        """How many of the pod's GPUs this device could be."""
        many = self.replicas > 1 and demand.milli == 1000
        return min(free // self.need(demand, device), MOST_SHARES if many else 1)

    # Taking

    def take(self, pod, grants):
        """Take the pod's resources and devices; AssertionError where it did not ask for these, or they are not free."""
        assert not self.reasons(pod), (pod.metadata.name, self.node.metadata.name, self.reasons(pod))
        demand = GpuDemand(pod)
        if demand.profile:
            self._take_instances(demand, grants)
        elif demand.count:
            self._take_shares(demand, grants)
        else:
            assert not grants
        for key, amount in requests_of(pod).items():
            self.free[key] = self.free.get(key, 0) - amount

    def charge(self, pod, grants):
        """Subtract the pod without checking whether it fits: it was bound outside of Windlass."""
        for key, amount in requests_of(pod).items():
            self.free[key] = self.free.get(key, 0) - amount
        for grant in grants:
            if grant.index < len(self.devices):
                device = self.devices[grant.index]
                if not grant.profile:
                    device.free -= grant.milli if device.healthy else 0  # an unhealthy device has nothing free
                elif grant.start in device.starts(grant.profile):
                    device.used |= device.slices(grant.profile, grant.start)

    def _take_shares(self, demand, grants):
        indices = [grant.index for grant in grants]
        assert len(set(indices)) == len(indices)
        given = 0
        for grant in grants:
            device, need = self.devices[grant.index], self.need(demand, self.devices[grant.index])
            assert device.healthy
            assert demand.allows(device)
            assert not grant.profile
            assert grant.milli % need == 0
            assert grant.milli // need <= self.copies(demand, device, device.free)
            device.free -= grant.milli
            given += grant.milli // need
        assert given == demand.count

    def _take_instances(self, demand, grants):
        if not self._creates_instances():
            assert not grants
            return
        assert len(grants) == demand.count
        for grant in grants:
            device = self.devices[grant.index]
            assert demand.allows(device)
            assert grant.profile == demand.profile
            assert grant.start in device.starts(demand.profile)
            device.used |= device.slices(demand.profile, grant.start)


def _largest_set_of_starts(device, profile, after=-1):
    """The most instances that fit together; every combination is tried."""
    best = []
    for start in device.starts(profile):
        if start <= after:
            continue
        slices = device.slices(profile, start)
        device.used |= slices
        found = [start, *_largest_set_of_starts(device, profile, start)]
        device.used -= slices
        if len(found) > len(best):
            best = found
    return best
