"""Reads container logs of a live cluster and, if asked for, runs `nvidia-smi` and `dmesg` in containers.

Called by `why` for the pods of a question and by `dump.collect` for failing pods. The commands only read.
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
"""The newest lines of a log, which say what is wrong now."""
MOST_PODS = 20
MAX_CONCURRENT_READS = 8
NVIDIA_SMI = ("nvidia-smi",)
DMESG = ("dmesg",)
MAX_HOST_LOG_LINES = 2_000


class PodLog(msgspec.Struct, frozen=True):
    namespace: str
    pod: str
    container: str
    """`main.previous` is the log before the last restart, `main.nvidia-smi` the output of that command."""
    text: str


class HostLog(msgspec.Struct, frozen=True):
    node: str
    source: str
    text: str


class ContainerRef(msgspec.Struct, frozen=True):
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
    resources = [_table(container.get("resources")) for container in _rows(spec.get("containers"))]
    tables = [_table(table.get("limits")) for table in resources]
    return {str(name) for table in tables for name in table}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


async def read_logs(client: KubeClient, containers: Iterable[ContainerRef]) -> list[PodLog]:
    """The logs of these containers, also of the run before the last restart."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_READS)
    wanted = [(ref, False) for ref in containers]
    wanted += [(ref, True) for ref, _ in wanted if ref.restarted]
    found = await asyncio.gather(*(_log(client, ref, before, limit) for ref, before in wanted))
    return [log for log in found if log is not None]


async def _log(client: KubeClient, ref: ContainerRef, before: bool, limit: asyncio.Semaphore) -> PodLog | None:
    path = f"/api/v1/namespaces/{ref.namespace}/pods/{ref.pod}/log"
    query = [("container", ref.container), ("tailLines", TAIL_LINES)]
    query += [("previous", "true")] if before else []
    async with limit:
        try:
            body = await client.send(Request("GET", path, tuple(query)))
        except (ApiError, ServerUnavailable):
            return None  # not started yet, or its node is away: no log is no evidence
    name = f"{ref.container}.previous" if before else ref.container
    return PodLog(ref.namespace, ref.pod, name, body.decode(errors="replace"))


async def run_nvidia_smi(
    client: KubeClient, containers: Sequence[ContainerRef]
) -> tuple[list[PodLog], list[tuple[str, str]]]:
    """The output of `nvidia-smi` in every running container, and (problem, kubectl command) where that failed."""
    running = [ref for ref in containers if ref.running][:MOST_PODS]
    answers = await asyncio.gather(*(_run(client, ref, NVIDIA_SMI) for ref in running))
    logs, problems = [], []
    for ref, (text, problem) in zip(running, answers, strict=True):
        if problem:
            command = f"kubectl exec -n {ref.namespace} {ref.pod} -c {ref.container} -- nvidia-smi"
            problems.append((problem, command))
        else:
            logs.append(PodLog(ref.namespace, ref.pod, f"{ref.container}.nvidia-smi", text))
    return logs, problems


async def collect_host_logs(client: KubeClient, containers: Sequence[ContainerRef]) -> list[HostLog]:
    """`nvidia-smi` and `dmesg` of the hosts, run in pods of the GPU stack, some of which are privileged."""
    found: dict[tuple[str, str], HostLog] = {}
    for ref in [ref for ref in containers if ref.running][:MOST_PODS]:
        for source, command in (("nvidia-smi", NVIDIA_SMI), ("dmesg", DMESG)):
            if (ref.node, source) in found:
                continue
            text, problem = await _run(client, ref, command)
            if not problem and "not found" not in text[:200]:
                kept = "\n".join(text.splitlines()[-MAX_HOST_LOG_LINES:])
                found[ref.node, source] = HostLog(ref.node, source, kept)
    return list(found.values())


async def _run(client: KubeClient, ref: ContainerRef, command: tuple[str, ...]) -> tuple[str, str]:
    """(output with the server's message if the command failed, why it could not be run at all)."""
    try:
        result = await exec_in_container(client, ref.namespace, ref.pod, ref.container, command)
    except (ApiError, ServerUnavailable) as error:
        return "", f"{' '.join(command)} in pod {ref.namespace}/{ref.pod} ({ref.container}): {error}"
    failure = "" if result.succeeded else f"\n{result.message}"
    return f"{result.text}{failure}", ""
