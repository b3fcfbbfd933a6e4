"""`windlass install` prints the manifests of Windlass; `windlass uninstall` deletes the objects.

The objects come from `install_manifests`. The user applies them with kubectl; the cluster is only asked for its CRDs,
since CRDs of Kueue are not replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.cluster_option import run_with_client
from windlass.cli.install_hand_over import hand_over_crds
from windlass.cli.install_monitoring import install_monitoring
from windlass.cli.install_node import install_node, uninstall_node
from windlass.cli.install_observe import install_observe, uninstall_observe
from windlass.cli.install_operator import install_operator, uninstall_operator
from windlass.cli.output import print_note
from windlass.cli.parameters import default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import ClusterUnreachable, InputError
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

INSTALL_EXAMPLES = """\b
Examples:
  windlass install | kubectl apply --server-side -f -
  windlass install --image registry.example.com/windlass:0.1 --scheduler-name default-scheduler
"""
UNINSTALL_EXAMPLES = """\b
Examples:
  windlass uninstall
  windlass uninstall --crds
"""


@click.group("install", invoke_without_command=True, epilog=INSTALL_EXAMPLES)
@kubeconfig_options
@default_option("-n", "--namespace", default="windlass-system", help="Where it runs.")
@click.option("--image", default="", help="The container image. [default: windlass:VERSION]")
@click.option("--image-pull-policy", type=click.Choice(["IfNotPresent", "Always", "Never"]), default="IfNotPresent")
@default_option("--replicas", type=click.IntRange(1, 10), default=2, help="One of them leads.")
@click.option(
    "--scheduler-name", "names", multiple=True, help="Take pods that name this scheduler. [default: windlass]"
)
@click.option("--node-selector", default="", help="Use only nodes with these labels, such as pool=gpu.")
@click.option("--take-over", multiple=True, metavar="QUEUE", help="Admit this queue although Kueue runs.")
@default_option(
    "--crds",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="auto: those that the cluster doesn't have from another installation, such as Kueue.",
)
def install(**given: Any) -> None:
    """Print the manifests that put Windlass into a cluster. Nothing is applied.

    `windlass install` is the scheduler, `windlass install node` the agent of GPU nodes, `windlass install operator`
    what brings nodes up, changes and repairs them, `windlass install monitoring` alerts and a dashboard,
    `windlass install observe` the page's server; `hand-over-crds` is for the day on which Kueue is installed.
    """
    if click.get_current_context().invoked_subcommand:
        return
    from windlass.cli.install_crds import crds
    from windlass.cli.install_manifests import InstallOptions, all_objects

    defaults = InstallOptions()
    choices = InstallOptions(
        namespace=given["namespace"],
        image=given["image"] or defaults.image,
        pull_policy=given["image_pull_policy"],
        replicas=given["replicas"],
        scheduler_names=given["names"] or defaults.scheduler_names,
        node_selector=given["node_selector"],
        take_over=given["take_over"],
    )
    wanted = crds() if given["crds"] != "never" else []
    if given["crds"] == "auto":
        wanted = _without_foreign(wanted, given["kubeconfig"], given["context"])
    click.echo(to_yaml(all_objects(choices, wanted)), nl=False)


@click.group("uninstall", invoke_without_command=True, epilog=UNINSTALL_EXAMPLES)
@kubeconfig_options
@default_option("-n", "--namespace", default="windlass-system", help="Where it runs.")
@click.option("--crds", is_flag=True, help="Remove our CRDs also where objects of their kinds are left, and those too.")
def uninstall(kubeconfig: str, context: str, namespace: str, crds: bool) -> None:
    """Remove what `windlass install` made. Running pods, Jobs and nodes are left alone.

    CRDs go only if they are ours and no object of their kind is left; `--crds` removes them with their objects.
    `windlass uninstall node` removes the agent of GPU nodes.
    """
    if click.get_current_context().invoked_subcommand:
        return
    run_with_client(kubeconfig, context, lambda client: remove_installation(client, namespace, remove_used_crds=crds))


def to_yaml(objects: Iterable[Unstructured]) -> str:
    import yaml

    class Plain(yaml.CSafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # a reader of manifests expects them written out

    text = yaml.dump_all(objects, Dumper=Plain, sort_keys=False, explicit_start=True)
    return str(text)


def _without_foreign(wanted: list[Unstructured], kubeconfig: str, context: str) -> list[Unstructured]:
    """Without CRDs that the cluster has from another installation, such as Kueue."""
    try:
        existing = run_with_client(kubeconfig, context, lambda client: client.get(CRD_PATH))["items"] or ()
    except (ClusterUnreachable, InputError) as error:
        if kubeconfig or context:
            raise
        print_note(f"the cluster's CRDs can't be read, so all CRDs are printed: {error}")
        return wanted
    foreign = {crd["metadata"]["name"] for crd in existing if not _is_ours(crd)}
    left = [crd["metadata"]["name"] for crd in wanted if crd["metadata"]["name"] in foreign]
    if left:
        print_note(f"left out, since the cluster has them from another installation: {', '.join(left)}")
    return [crd for crd in wanted if crd["metadata"]["name"] not in foreign]


async def remove_installation(client: KubeClient, namespace: str, *, remove_used_crds: bool) -> None:
    """Deletes the installed objects, in reverse order."""
    from windlass.cli.handover_manifests import HandoverOptions, handover_manifests
    from windlass.cli.install_crds import crds
    from windlass.cli.install_manifests import InstallOptions, manifests

    first, *rest = manifests(InstallOptions(namespace=namespace))
    await remove_objects(client, handover_manifests(HandoverOptions(namespace, "", ())))
    await remove_objects(client, rest)
    for crd in crds():
        await _delete_crd(client, crd, remove_used_crds)
    await _delete(client, first)


async def remove_objects(client: KubeClient, objects: Sequence[Unstructured]) -> None:
    """In reverse order; objects without our label stay."""
    for obj in reversed(objects):
        await _delete(client, obj)


async def _delete(client: KubeClient, obj: Unstructured) -> None:
    from windlass.kube.errors import NotFound
    from windlass.kube.request import Request

    path, what = path_of(obj), f"{obj['kind']} {obj['metadata']['name']}"
    try:
        if not _is_ours(await client.get(path)):
            print_note(f"{what} was not created by windlass install, and stays")
            return
        await client.send(Request("DELETE", path, body={"propagationPolicy": "Background"}))
    except NotFound:
        return
    print_note(f"{what} removed")


async def _delete_crd(client: KubeClient, crd: Unstructured, also_used: bool) -> None:
    spec = crd["spec"]
    if not also_used:
        from windlass.kube.errors import NotFound

        version = spec["versions"][0]["name"]
        try:
            found = await client.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", limit="1")
        except NotFound:
            return
        if found["items"]:
            name = crd["metadata"]["name"]
            print_note(f"{name} stays, since there are objects of its kind (--crds removes them too)")
            return
    await _delete(client, crd)


def _is_ours(obj: Unstructured) -> bool:
    return (obj["metadata"].get("labels") or {}).get(APP_MANAGED_BY_LABEL) == "windlass"


install.add_command(install_node)
install.add_command(install_monitoring)
install.add_command(install_observe)
install.add_command(install_operator)
install.add_command(hand_over_crds)
uninstall.add_command(uninstall_node)
uninstall.add_command(uninstall_observe)
uninstall.add_command(uninstall_operator)


def path_of(obj: Unstructured) -> str:
    version, metadata = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    kind = obj["kind"].lower()
    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + "s"  # enough for the kinds that we install
    return f"{root}{inside}/{plural}/{metadata['name']}"
