"""The kubelets of all nodes of the embedded cluster, as one worker of the controllers' loop.

Hears of pods that are bound to one of its nodes, lets them in or not (`admission`), hands out devices (`machine`),
lives their lives (`podrun`), writes their status (`podstatus`) and deletes them in the end. What it runs them on is a
`Containers`: simulated, or processes of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.doors import Door
from windlass.embedded.controllers.events import Allowance, EventWriter
from windlass.embedded.controllers.objects import (
    Tree,
    annotations_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    split_key,
    timestamp,
    uid_of,
    with_condition,
)
from windlass.embedded.controllers.pods import is_finished
from windlass.embedded.runtime.addresses import Addresses
from windlass.embedded.runtime.admission import REJECTED, Need, Rejected, Room, admit
from windlass.embedded.runtime.box import Box
from windlass.embedded.runtime.containers import Containers, Exit, Launch
from windlass.embedded.runtime.environment import container_environment
from windlass.embedded.runtime.machine import Machine, NoDevices, Unit
from windlass.embedded.runtime.podrun import PodRun
from windlass.embedded.runtime.podstatus import pod_status
from windlass.node.wishes import GIVEN, WISH


class Park(Protocol):
    """The machines that this kubelet stands for."""

    def machine(self, node: str) -> Machine | None:
        """None for a node that is somebody else's."""

    def is_ours(self, node: str) -> bool: ...

    def is_down(self, node: str) -> bool:
        """Whether the node has failed and says nothing."""

    def names(self) -> list[str]: ...


class Kubelet:
    name = "kubelet"
    resources = ("pods", "nodes")

    def __init__(
        self, door: Door, cache: Cache, park: Park, containers: Containers, start_seconds: float = 0.0
    ) -> None:
        self._door, self._cache, self._park, self._containers = door, cache, park, containers
        self._events = EventWriter(door, self.name, Allowance())
        self._room = Room()
        self._start_seconds = start_seconds
        self._addresses = Addresses()
        self.runs: dict[str, PodRun] = {}
        self._needs: dict[str, dict[str, Need]] = {}
        """Node → pod → what it needs there."""
        self._shapes: dict[tuple[object, ...], Need] = {}
        """What pods need, once for all that need the same."""
        self._now = 0.0

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        if resource == "nodes":
            if kind == "ADDED":
                yield from (key_of(pod) for pod in self._cache.on_node(name_of(new)))
            return
        node = (new.get("spec") or {}).get("nodeName")
        if node and self._park.machine(node) is not None:
            yield key_of(new)

    def work(self, key: str, now: float) -> float | None:
        self._now = now
        pod = self._cache.get("pods", key)
        run = self.runs.get(key)
        if run is not None and (pod is None or uid_of(pod) != run.uid):
            self._forget(key, run, now)
            run = None
        machine = self._park.machine(_node_of(pod)) if pod is not None else None
        if pod is None or machine is None or self._park.is_down(machine.name):
            return None
        if run is None:
            run = self._take_in(key, pod, machine, now)
            if run is None:
                return None
        again = run.step(pod, now)
        self._report(key, run, pod, now)
        return again

    def of_node(self, node: str) -> list[str]:
        """Keys of the pods that run there."""
        return [key for key, run in self.runs.items() if _node_of(run.pod) == node]

    def fail_pod(self, key: str, reason: str, message: str, now: float, ended: Exit) -> None:
        """A device of the pod is broken: the whole pod fails, and whoever owns it makes another."""
        run = self.runs.get(key)
        pod = self._cache.get("pods", key)
        if run is None or pod is None:
            return
        self._events.write(pod, reason, message, now, type="Warning", host=_node_of(pod))
        run.fail(reason, message, now, ended)
        self._report(key, run, pod, now, disrupted=message)

    def lose_power(self, node: str, now: float) -> None:
        """Everything on the node stops; nobody hears of it until the node is back."""
        for key in self.of_node(node):
            self.runs[key].crash(Exit(255, "Unknown", "the node was restarted"), now)

    def _take_in(self, key: str, pod: Tree, machine: Machine, now: float) -> PodRun | None:
        """A pod that is new here; None where it has ended or is refused."""
        if is_finished(pod):
            return None
        known = bool((pod.get("status") or {}).get("startTime"))
        if is_deleting(pod) and not known:
            self._door.delete("pods", *split_key(key), grace=0, uid=uid_of(pod))
            return None
        try:
            units = self._admit(key, pod, machine, known)
        except Rejected as refused:
            self._refuse(pod, refused, now)
            return None
        run = PodRun(pod, self._containers, self._launch, self._teller(key), self._start_seconds)
        self.runs[key] = run
        self._addresses.give(machine.name, key, str((pod.get("status") or {}).get("podIP") or ""))
        if known:
            run.restore(now)
        if units and annotations_of(pod).get(GIVEN) != _indices(units):
            merge = {"metadata": {"uid": uid_of(pod), "annotations": {GIVEN: _indices(units)}}}
            self._door.patch("pods", *split_key(key), merge)
            run.pod = self._cache.get("pods", key) or pod
        return run

    def _admit(self, key: str, pod: Tree, machine: Machine, known: bool) -> tuple[Unit, ...]:
        need = Need(pod)
        need = self._shapes.setdefault(need.shape, need)
        node = self._cache.get("nodes", machine.name)
        if node is not None and not known:
            running = self._needs.get(machine.name, {})
            others = [each for other, each in running.items() if other != key]
            admit(self._room.of(node), need, others)
        given = annotations_of(pod).get(GIVEN) if known else ""
        wish = [
            int(word) for word in (given or annotations_of(pod).get(WISH, "")).split(",") if word.isdigit()
        ]
        try:
            units = machine.take(key, need.devices, wish)
        except NoDevices as refused:
            if not known:
                raise Rejected("UnexpectedAdmissionError", f"{REJECTED}{refused}") from None
            units = ()
        self._needs.setdefault(machine.name, {})[key] = need
        return units

    def _refuse(self, pod: Tree, refused: Rejected, now: float) -> None:
        said = {"phase": "Failed", "reason": refused.reason, "message": refused.message}
        merge = {"status": {**said, "startTime": timestamp(now)}}
        self._door.patch("pods", namespace_of(pod), name_of(pod), merge, "status")
        self._events.write(
            pod,
            refused.reason,
            refused.message.removeprefix(REJECTED),
            now,
            type="Warning",
            host=_node_of(pod),
        )

    def _report(self, key: str, run: PodRun, pod: Tree, now: float, disrupted: str = "") -> None:
        pod = self._cache.get("pods", key) or pod
        host = self._host_ip(_node_of(pod))
        status = pod_status(run, pod, now, host, self._addresses.of(_node_of(pod), key))
        if disrupted:
            new = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            status["conditions"] = with_condition(status["conditions"], {**new, "message": disrupted}, now)
        try:
            if status != pod.get("status"):
                self._door.update(
                    "pods", namespace_of(pod), name_of(pod), {**pod, "status": status}, "status"
                )
            if run.is_over:
                self._end(key, run, pod)
        except ApiError as error:
            if error.code != 404:
                raise

    def _end(self, key: str, run: PodRun, pod: Tree) -> None:
        """The pod is over: its devices are free again, and if it is to be deleted, it goes."""
        self._leave(key, run)
        if is_deleting(pod):
            self._door.delete("pods", *split_key(key), grace=0, uid=run.uid)

    def _leave(self, key: str, run: PodRun) -> None:
        node = _node_of(run.pod)
        self._needs.get(node, {}).pop(key, None)
        machine = self._park.machine(node)
        if machine is not None:
            machine.give_back(key)
        self._addresses.take_back(node, key)

    def _forget(self, key: str, run: PodRun, now: float) -> None:
        """The object is gone, perhaps by force: whatever still runs is killed."""
        run.crash(Exit(137), now)
        self._leave(key, run)
        del self.runs[key]
        self._containers.forget(run.pod)

    def _launch(self, pod: Tree, box: Box) -> Launch:
        environment = container_environment(pod, box.spec, self._lookup)
        machine = self._park.machine(_node_of(pod))
        units = machine.held_by(key_of(pod)) if machine is not None else ()
        mine = _share_of(pod, box.spec, units)
        devices = [machine.uuid_of(unit) for unit in mine] if machine is not None else []
        return Launch(pod, box.spec, box.restarts + (box.ended is not None), environment, tuple(devices))

    def _lookup(self, resource: str, namespace: str, name: str) -> Tree | None:
        try:
            return self._door.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _teller(self, key: str) -> Callable[[str, str, str, str], None]:
        def tell(kind: str, reason: str, message: str, container: str) -> None:
            pod = self._cache.get("pods", key)
            if pod is not None:
                firsts = {each["name"] for each in pod["spec"].get("initContainers") or ()}
                field = f"spec.{'initContainers' if container in firsts else 'containers'}{{{container}}}"
                self._events.write(
                    pod, reason, message, self._now, type=kind, host=_node_of(pod), field=field
                )

        return tell

    def _host_ip(self, node: str) -> str:
        found = self._cache.get("nodes", node) if self._cache.follows("nodes") else None
        for address in ((found or {}).get("status") or {}).get("addresses") or ():
            if address["type"] == "InternalIP":
                return str(address["address"])
        return ""


def _node_of(pod: Tree) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _indices(units: tuple[Unit, ...]) -> str:
    return ",".join(str(unit.index) for unit in units)


def _share_of(pod: Tree, container: Tree, units: tuple[Unit, ...]) -> list[Unit]:
    """The devices of one container, dealt out in the order of containers; init containers use those of all."""
    if not any(each["name"] == container["name"] for each in pod["spec"]["containers"]):
        return list(units)
    if any(unit.resource == "share" for unit in units):
        return list(units)
    left = list(units)
    for each in pod["spec"]["containers"]:
        limits: Mapping[str, object] = (each.get("resources") or {}).get("limits") or {}
        mine: list[Unit] = []
        for resource, amount in limits.items():
            same = [unit for unit in left if unit.resource == resource][: _count(amount)]
            mine += same
            left = [unit for unit in left if unit not in same]
        if each["name"] == container["name"]:
            return mine
    return []


def _count(amount: object) -> int:
    text = str(amount)
    return int(text) if text.isascii() and text.isdigit() else 0
