"""The answer of `why` on a live cluster: reads it, asks `diagnose.why`, and tries the patches there.

Called by `cli.why`; all in one event loop, with one client, so that credentials are fetched once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from windlass.cli.pod_evidence import add_pod_evidence

if TYPE_CHECKING:
    from windlass.diagnose.evidence import Evidence
    from windlass.diagnose.finding import Diagnosis
    from windlass.dump.collect import Progress
    from windlass.dump.configuration import Configuration
    from windlass.kube.client import KubeClient


class LiveQuestion(NamedTuple):
    about: str
    """`KIND/NAME`."""
    namespace: str
    moment: int
    """0: now."""
    configuration: Configuration | None
    looks_inside: bool
    """Whether to run nvidia-smi and dmesg in containers."""
    tries_patches: bool


async def live_answer(asked: LiveQuestion, client: KubeClient, progress: Progress) -> tuple[Evidence, Diagnosis]:
    from windlass.diagnose.evidence import evidence_from_collected
    from windlass.diagnose.server_trial import tried_on_server
    from windlass.diagnose.why import why, with_proposals
    from windlass.dump.collect import collect_cluster

    evidence = evidence_from_collected(await collect_cluster(client, asked.namespace, progress))
    await add_pod_evidence(client, evidence, asked.about, asked.namespace, asked.looks_inside)
    answer = with_proposals if asked.tries_patches else why
    diagnosis = answer(evidence, asked.about, asked.namespace, asked.moment or int(time.time()), asked.configuration)
    if asked.tries_patches:
        diagnosis = await tried_on_server(client, evidence, diagnosis)
    return evidence, diagnosis
