"""Adds logs of the subject's pods to the evidence and, with `--exec`, the output of nvidia-smi and dmesg.

Called by `live_answer` after everything else is read, since only then the subject's pods are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.dump.container_logs import (
    MOST_PODS,
    ContainerRef,
    collect_host_logs,
    containers_of,
    read_logs,
    run_nvidia_smi,
)
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass.diagnose.evidence import Evidence
    from windlass.kube.client import KubeClient


async def add_pod_evidence(
    client: KubeClient, evidence: Evidence, question: str, namespace: str, with_exec: bool
) -> None:
    from windlass.diagnose.subject import find_subject, node_of

    try:
        subject = find_subject(evidence, question, namespace)
    except InputError:
        return  # `why` reports the error
    pods = [pod for pod in subject.pods if node_of(pod)][:MOST_PODS]
    places = [place for pod in pods for place in containers_of(pod.data)]
    for log in await read_logs(client, places):
        evidence.add_pod_log(log.namespace, log.pod, log.container, log.text.splitlines())
    if not with_exec:
        return
    outputs, problems = await run_nvidia_smi(client, places)
    for log in outputs:
        evidence.add_pod_log(log.namespace, log.pod, log.container, log.text.splitlines())
    evidence.failed_queries += problems
    for host in await collect_host_logs(client, _stack_containers(evidence, {node_of(pod) for pod in pods})):
        evidence.add_host_log(host.node, host.source, host.text.splitlines())


def _stack_containers(evidence: Evidence, nodes: set[str]) -> list[ContainerRef]:
    """Containers of the GPU stack on these nodes, the driver's first, since it may read the kernel log."""
    from windlass.diagnose.stack_components import stack_pods

    ranked = [
        (part != "driver", place)
        for node in sorted(nodes)
        for part, pod in stack_pods(evidence, node)
        for place in containers_of(pod.data)
    ]
    return [place for _, place in sorted(ranked, key=lambda item: item[0])]
