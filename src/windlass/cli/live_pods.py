"""The pods that a question to a live cluster is about: their logs and, with `--exec`, what they and their hosts see.

`why` adds it to the evidence once everything else is read, since only then it is known whose pods they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.dump.inside import MOST_PODS, Place, look_at_hosts, look_inside, places_of, read_logs
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass.diagnose.evidence import Evidence
    from windlass.kube.client import KubeClient


async def add_pods(
    client: KubeClient, evidence: Evidence, question: str, namespace: str, inside: bool
) -> None:
    from windlass.diagnose.subject import find_subject, node_of

    try:
        subject = find_subject(evidence, question, namespace)
    except InputError:
        return  # whoever answers the question will say so
    pods = [pod for pod in subject.pods if node_of(pod)][:MOST_PODS]
    places = [place for pod in pods for place in places_of(pod.data)]
    for log in await read_logs(client, places):
        evidence.add_pod_log(log.namespace, log.pod, log.container, log.text.splitlines())
    if not inside:
        return
    seen, problems = await look_inside(client, places)
    for log in seen:
        evidence.add_pod_log(log.namespace, log.pod, log.container, log.text.splitlines())
    evidence.unanswered += problems
    for host in await look_at_hosts(client, _stack_places(evidence, {node_of(pod) for pod in pods})):
        evidence.add_host_log(host.node, host.source, host.text.splitlines())


def _stack_places(evidence: Evidence, nodes: set[str]) -> list[Place]:
    """Containers of the GPU stack on these nodes, the driver's first: it may read the kernel's log."""
    from windlass.diagnose.parts import stack_pods

    ranked = [
        (part != "driver", place)
        for node in sorted(nodes)
        for part, pod in stack_pods(evidence, node)
        for place in places_of(pod.data)
    ]
    return [place for _, place in sorted(ranked, key=lambda one: one[0])]
