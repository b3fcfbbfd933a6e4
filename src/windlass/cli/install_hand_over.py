"""`windlass install hand-over-crds`: the CRDs of the queue API, which Windlass installed, become Kueue's.

Objects of these kinds stay as they are. Without it Helm refuses to install Kueue, since CRDs of its chart exist and are
not its own, and `windlass uninstall` would take them for ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.cluster_option import run_with_client
from windlass.cli.output import print_note
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient

EXAMPLES = """\b
Examples:
  windlass install hand-over-crds --helm-release kueue-system/kueue
  windlass install hand-over-crds
"""


@click.command("hand-over-crds", epilog=EXAMPLES)
@kubeconfig_options
@click.option("--helm-release", default="", metavar="NAMESPACE/NAME", help="Of Kueue's chart. [default: no chart]")
def hand_over_crds(kubeconfig: str, context: str, helm_release: str) -> None:
    """Give the queue API's CRDs to Kueue, before Kueue is installed.

    Then install Kueue: its CRDs replace these, objects stay, and Windlass leaves the queues to it at once.
    """
    namespace, slash, release = helm_release.partition("/")
    if helm_release and not (namespace and slash and release):
        raise InputError(f"'{helm_release}' is not NAMESPACE/NAME", path="--helm-release")
    run_with_client(kubeconfig, context, lambda client: _hand_over(client, namespace, release))


async def _hand_over(client: KubeClient, namespace: str, release: str) -> None:
    from windlass.cli.install_crds import KUEUE, MANAGED_LABELS, QUEUE_API_ANNOTATION, crds
    from windlass.kube.errors import NotFound
    from windlass.kube.request import MERGE_PATCH, Request

    labels: dict[str, Any] = dict.fromkeys(MANAGED_LABELS)
    annotations: dict[str, Any] = {QUEUE_API_ANNOTATION: None, "helm.sh/resource-policy": None}
    if release:
        labels[APP_MANAGED_BY_LABEL] = "Helm"
        annotations |= {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
    for crd in crds():
        name = crd["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        if crd["spec"]["group"] != KUEUE:
            continue
        try:
            found = await client.get(path)
        except NotFound:
            continue
        if QUEUE_API_ANNOTATION not in (found["metadata"].get("annotations") or {}):
            print_note(f"{name} was not installed by Windlass: unchanged")
            continue
        body = {"metadata": {"labels": labels, "annotations": annotations}}
        await client.send(Request("PATCH", path, body=body, content_type=MERGE_PATCH))
        print_note(f"{name} handed over to Kueue")
