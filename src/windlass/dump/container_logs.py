"""What pods say of themselves in a live cluster: their containers' logs and, where asked, `nvidia-smi` inside them.

`why` asks for the pods that a question is about, once it knows which; `collect` asks for pods that fail. Every command
that is run inside a container only reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, ServerUnavailable
from windlass.kube.pod_exec import exec_in_container
from windlass.kube.request import Request

TAIL_LINES = "400"
"""Lines of a log that are kept: the newest say what is wrong now."""
MOST_PODS = 20
MAX_CONCURRENT_READS = 8
NVIDIA_SMI = ("nvidia-smi",)
DMESG = ("dmesg",)
MAX_HOST_LOG_LINES = 2_000


class PodLog(msgspec.Struct, frozen=True):
    namespace: str
    pod: str
    container: str
    """`main.previous` is the log before the last restart, `main.nvidia-smi` what that said inside."""
    text: str


class HostLog(msgspec.Struct, frozen=True):
    node: str
    source: str
    text: str


class ContainerRef(msgspec.Struct, frozen=True):
    """A container."""

    namespace: str
    pod: str
    container: str
    restarted: bool = False
    running: bool = False
    node: str = ""


def containers_of(pod: dict[str, Any]) -> list[ContainerRef]:
    """The containers of a pod, as its spec and status have them."""
    metadata, spec, status = (_table(pod.get(key)) for key in ("metadata", "spec", "status"))
    known: dict[str, dict[str, Any]] = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        known |= {str(status_row.get("name", "")): status_row for status_row in _rows(status.get(kind))}
    return [
        ContainerRef(
            namespace=str(metadata.get("namespace", "")),
            pod=str(metadata.get("name", "")),
            container=name,
            restarted=bool(known.get(name, {}).get("restartCount")),
            running="running" in _table(known.get(name, {}).get("state")),
            node=str(spec.get("nodeName", "")),
        )
        for kind in ("initContainers", "containers")
        for container in _rows(spec.get(kind))
        if (name := str(container.get("name", "")))
    ]


def limited_resources(spec: dict[str, Any]) -> set[str]:
    """The resources that a pod's containers are limited in."""
    tables = [
        _table(_table(container.get("resources")).get("limits"))
        for container in _rows(spec.get("containers"))
    ]
    return {str(name) for table in tables for name in table}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


async def read_logs(client: KubeClient, containers: Iterable[ContainerRef]) -> list[PodLog]:
    """The logs of these containers, also of the run before the last restart."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_READS)
    wanted = [(place, False) for place in containers]
    wanted += [(place, True) for place, _ in wanted if place.restarted]
    found = await asyncio.gather(*(_log(client, place, before, limit) for place, before in wanted))
    return [log for log in found if log is not None]


async def _log(
    client: KubeClient, place: ContainerRef, before: bool, limit: asyncio.Semaphore
) -> PodLog | None:
    path = f"/api/v1/namespaces/{place.namespace}/pods/{place.pod}/log"
    query = (
        ("container", place.container),
        ("tailLines", TAIL_LINES),
        *((("previous", "true"),) if before else ()),
    )
    async with limit:
        try:
            body = await client.send(Request("GET", path, query))
        except (ApiError, ServerUnavailable):
            return None  # not started yet, or its node is away: no log is no evidence
    name = f"{place.container}.previous" if before else place.container
    return PodLog(place.namespace, place.pod, name, body.decode(errors="replace"))


async def run_nvidia_smi(
    client: KubeClient, containers: Sequence[ContainerRef]
) -> tuple[list[PodLog], list[tuple[str, str]]]:
    """`nvidia-smi` in every running container; and (what, command) of what could not be run."""
    running = [place for place in containers if place.running][:MOST_PODS]
    answers = await asyncio.gather(*(_run(client, place, NVIDIA_SMI) for place in running))
    logs, problems = [], []
    for place, (text, problem) in zip(running, answers, strict=True):
        if problem:
            command = f"kubectl exec -n {place.namespace} {place.pod} -c {place.container} -- nvidia-smi"
            problems.append((problem, command))
        else:
            logs.append(PodLog(place.namespace, place.pod, f"{place.container}.nvidia-smi", text))
    return logs, problems


async def collect_host_logs(client: KubeClient, containers: Sequence[ContainerRef]) -> list[HostLog]:
    """What `nvidia-smi` and the kernel say on the hosts, asked in pods of the GPU stack, of which some may."""
    found: dict[tuple[str, str], HostLog] = {}
    for place in [place for place in containers if place.running][:MOST_PODS]:
        for source, command in (("nvidia-smi", NVIDIA_SMI), ("dmesg", DMESG)):
            if (place.node, source) in found:
                continue
            text, problem = await _run(client, place, command)
            if not problem and "not found" not in text[:200]:
                kept = "\n".join(text.splitlines()[-MAX_HOST_LOG_LINES:])
                found[place.node, source] = HostLog(place.node, source, kept)
    return list(found.values())


async def _run(client: KubeClient, place: ContainerRef, command: tuple[str, ...]) -> tuple[str, str]:
    """What it printed, the server's word on a failure behind it; or why it could not be run at all."""
    try:
        result = await exec_in_container(client, place.namespace, place.pod, place.container, command)
    except (ApiError, ServerUnavailable) as error:
        return "", f"{' '.join(command)} in pod {place.namespace}/{place.pod} ({place.container}): {error}"
    failure = "" if result.succeeded else f"\n{result.message}"
    return f"{result.text}{failure}", ""
