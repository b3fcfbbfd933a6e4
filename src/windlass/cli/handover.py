"""`windlass handover`: freezes Windlass and has a kube-scheduler take the pods that wait for it; `--back` undoes it.

The objects come from `handover_manifests`. Windlass is frozen before kube-scheduler starts, and kube-scheduler is gone
before Windlass goes on, so that no two schedulers ever decide on the same pods.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.cluster_option import run_with_client
from windlass.cli.freeze import write_freeze
from windlass.cli.output import print_note
from windlass.cli.parameters import default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import ClusterUnreachable, InputError
from windlass.model.names.kubernetes import DEFAULT_SCHEDULER_NAME
from windlass.model.queue_names import named_queue
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from windlass.cli.handover_manifests import HandoverOptions
    from windlass.kube.client import KubeClient

IMAGE = "registry.k8s.io/kube-scheduler"
GONE_SECONDS, POLL_SECONDS = 90.0, 0.5
EXAMPLES = """\b
Examples:
  windlass handover
  windlass handover --back
"""


@click.command("handover", epilog=EXAMPLES)
@kubeconfig_options
@default_option("-n", "--namespace", default="windlass-system", help="Where Windlass runs.")
@click.option("--back", is_flag=True, help="Remove kube-scheduler and let Windlass go on.")
@click.option("--image", default="", help=f"[default: {IMAGE} in the version of the API server]")
@click.option("--scheduler-name", "names", multiple=True, help="Whose pods. [default: as Windlass has published it]")
@click.option("--without-quota", is_flag=True, help="Hand over even if pods of queues then start without quota.")
def handover(
    kubeconfig: str,
    context: str,
    namespace: str,
    back: bool,
    image: str,
    names: tuple[str, ...],
    without_quota: bool,
) -> None:
    """Hand the pods that wait for Windlass to kube-scheduler, with one command, and back with another.

    The pods are not changed. Suspended Jobs and pods with a scheduling gate keep waiting: kube-scheduler knows no
    queues, no gangs and no shares of a GPU. Refused if pods wait that only Windlass keeps within their queue's quota.
    """

    async def give(client: KubeClient) -> None:
        from windlass.cli.handover_manifests import HandoverOptions, release_of

        version = (await client.get("/version"))["gitVersion"]
        chosen = names or await _published_names(client, namespace)
        node = await _chosen_node(client) if DEFAULT_SCHEDULER_NAME in chosen else ""
        options = HandoverOptions(namespace, image or f"{IMAGE}:{release_of(version)}", chosen, node)
        if "+windlass" in version:
            print_note("this is `windlass up`: its pods are simulated, and a simulated kube-scheduler places nothing")
        await _report_waiting(client, options.scheduler_names, without_quota)
        await hand_over(client, options)

    run_with_client(kubeconfig, context, (lambda client: take_back(client, namespace)) if back else give)


async def hand_over(client: KubeClient, options: HandoverOptions) -> None:
    from windlass.cli.handover_manifests import NAME, handover_manifests
    from windlass.cli.install import path_of
    from windlass.kube.freeze import HANDED_OVER, STOP_SECONDS
    from windlass.kube.request import APPLY_PATCH, Request
    from windlass.kube.write_requests import FIELD_MANAGER

    await write_freeze(client, [options.namespace], frozen=True, reason=HANDED_OVER)
    print_note(f"Windlass is frozen; kube-scheduler starts in {STOP_SECONDS:.0f} s")
    await asyncio.sleep(STOP_SECONDS)
    query = (("fieldManager", FIELD_MANAGER), ("force", "true"))
    for obj in handover_manifests(options):
        await client.send(Request("PATCH", path_of(obj), query, obj, APPLY_PATCH))
    print_note(
        f"Deployment {options.namespace}/{NAME} ({options.image}) schedules the pods of "
        f"{', '.join(options.scheduler_names)} from now on. To go back: windlass handover --back"
    )


async def take_back(client: KubeClient, namespace: str) -> None:
    """Removes kube-scheduler, waits until it has ended, and lets Windlass go on."""
    from windlass.cli.handover_manifests import SELECTOR_LABELS, HandoverOptions, handover_manifests
    from windlass.cli.install import remove_objects
    from windlass.kube.resources import PODS

    await remove_objects(client, handover_manifests(HandoverOptions(namespace, "", ())))
    selector = ",".join(f"{key}={value}" for key, value in SELECTOR_LABELS.items())
    deadline = asyncio.get_running_loop().time() + GONE_SECONDS
    while (await client.get(PODS.namespace_collection(namespace), labelSelector=selector))["items"]:
        if asyncio.get_running_loop().time() > deadline:
            raise ClusterUnreachable(
                f"pods of kube-scheduler ({selector}) in namespace {namespace} have not ended within "
                f"{GONE_SECONDS:.0f} s, so Windlass stays frozen: delete them, then run windlass handover --back again"
            )
        await asyncio.sleep(POLL_SECONDS)
    await write_freeze(client, [namespace], frozen=False, reason="")
    print_note("kube-scheduler has ended; Windlass schedules again")


async def _chosen_node(client: KubeClient) -> str:
    from windlass.cli.handover_manifests import node_for_scheduler
    from windlass.kube.resources import NODES

    node = node_for_scheduler((await client.get(NODES.collection))["items"])
    if not node:
        raise ClusterUnreachable("no node is ready and not cordoned, so that kube-scheduler could not run anywhere")
    return node


async def _published_names(client: KubeClient, namespace: str) -> tuple[str, ...]:
    """The names under which the installed scheduler takes pods."""
    from windlass.dump.configuration import PUBLISHED_LABEL, published_configurations
    from windlass.kube.resources import CONFIG_MAPS

    listed = await client.get(CONFIG_MAPS.namespace_collection(namespace), labelSelector=PUBLISHED_LABEL)
    # The items of a list have no kind.
    found = published_configurations([{**config_map, "kind": "ConfigMap"} for config_map in listed["items"]])
    names = {name for configuration in found for name in configuration.settings.scheduler_names}
    return tuple(sorted(names)) or ("windlass",)


async def _report_waiting(client: KubeClient, names: tuple[str, ...], without_quota: bool) -> None:
    """Says what kube-scheduler will find. Raises if that breaks a quota."""
    from windlass.kube.resources import PODS

    listed = await client.get(PODS.collection, fieldSelector="spec.nodeName=,status.phase=Pending")
    waiting = [pod for pod in listed["items"] if pod["spec"].get("schedulerName") in names]
    gated = [pod for pod in waiting if pod["spec"].get("schedulingGates")]
    queued = [pod for pod in waiting if _queue_of(pod) and pod not in gated]
    print_note(f"{len(waiting)} pods wait for {', '.join(names)}; {len(gated)} have scheduling gates and keep waiting")
    if queued and not without_quota:
        first: dict[str, Any] = queued[0]["metadata"]
        raise InputError(
            f"{len(queued)} waiting pods belong to a queue and have no scheduling gate, such as "
            f"{first['namespace']}/{first['name']}: kube-scheduler would start them without quota",
            remedy="add --without-quota to hand them over all the same",
        )


def _queue_of(pod: Unstructured) -> str:
    metadata = pod["metadata"]
    return named_queue(metadata.get("labels") or {}, metadata.get("annotations") or {})
