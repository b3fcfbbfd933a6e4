"""`windlass freeze`: stops every write of all roles, says what is frozen since when and by whom, and lets them go on.

Writes the ConfigMap that `kube.freeze` describes, in the namespace of each role. A role reads it before it writes, so
nothing has to be acknowledged: a role that does not know of it is found by its Lease, which lacks the annotation.
"""

from __future__ import annotations

import getpass
import socket
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windlass.cli.cluster_option import run_with_client
from windlass.cli.output import output_option, print_document, windlass_document
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import ClusterUnreachable

if TYPE_CHECKING:
    from windlass.kube.client import KubeClient
    from windlass.kube.freeze import FreezeState

NAMESPACES = ("windlass-system", "windlass-node")
"""Where `install` and `install node` put the roles."""
EXAMPLES = """\b
Examples:
  windlass freeze --reason "evictions that nobody understands"
  windlass freeze --status
  windlass freeze --off
"""
NOT_STOPPED = "renewal of Leases, kubelets, other controllers, and `windlass` commands"


class FrozenNamespace(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of the roles of one namespace."""

    namespace: str
    state: str
    since: str
    by: str
    reason: str
    schedulers: tuple[str, ...]
    """Leases of schedulers that obey."""
    not_obeying: tuple[str, ...]
    """Those of schedulers which are too old to know of `freeze`."""


@click.command("freeze", epilog=EXAMPLES)
@kubeconfig_options
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Of the roles. [default: where install puts them]")
@click.option("--reason", default="", help="Shown by --status, and in the logs of every role.")
@click.option("--off", is_flag=True, help="Let all roles write again.")
@click.option("--status", is_flag=True, help="Only say what is frozen, since when and by whom.")
@output_option("text", "json")
def freeze(
    kubeconfig: str, context: str, namespaces: tuple[str, ...], reason: str, off: bool, status: bool, output: str
) -> None:
    """Stop every write of Windlass in a cluster at once: binds, evictions, admissions, status, events, labels.

    No scheduler and no node agent begins a write later than 5 s after this command. Running pods keep running, nothing
    is lost, and all goes on after `--off`. Leases are still renewed.
    """
    if off and status:
        raise click.UsageError("--off and --status exclude each other")

    async def use(client: KubeClient) -> list[FrozenNamespace]:
        present = await present_namespaces(client, namespaces)
        if not status:
            await write_freeze(client, present, frozen=not off, reason=reason)
        return [await read_freeze(client, namespace) for namespace in present]

    found = run_with_client(kubeconfig, context, use)
    if output == "json":
        print_document(windlass_document("Freeze", namespaces=msgspec.to_builtins(found)), output)
        return
    for line in freeze_lines(found):
        click.echo(line)


async def present_namespaces(client: KubeClient, wanted: tuple[str, ...]) -> list[str]:
    """Those that exist; one that was asked for by name has to."""
    from windlass.kube.errors import NotFound
    from windlass.kube.resources import NAMESPACES as RESOURCE

    found = []
    for name in wanted or NAMESPACES:
        try:
            await client.get(RESOURCE.path(name))
            found.append(name)
        except NotFound:
            if wanted:
                raise
    if not found:
        raise ClusterUnreachable(
            f"the cluster has none of the namespaces {', '.join(NAMESPACES)}: Windlass is not installed, or is in "
            "another namespace (name it with -n)"
        )
    return found


async def write_freeze(client: KubeClient, namespaces: list[str], *, frozen: bool, reason: str) -> None:
    """Writes the state. One that is as wanted already keeps its time and its author."""
    from windlass.kube.freeze import FREEZE_CONFIG_MAP, FROZEN, RUNNING, FreezeState, freeze_object
    from windlass.kube.resources import CONFIG_MAPS
    from windlass.kube.write_requests import apply_object
    from windlass.model.times import format_timestamp

    by = await user_name(client)
    for namespace in namespaces:
        known = await _state(client, namespace)
        state = FROZEN if frozen else RUNNING
        if known.state == state and not (reason and frozen):
            continue
        since = known.since if known.state == state else format_timestamp(int(time.time()))
        body = freeze_object(namespace, FreezeState(state, since, by, reason))
        await client.send(apply_object(CONFIG_MAPS, f"{namespace}/{FREEZE_CONFIG_MAP}", body))


async def read_freeze(client: KubeClient, namespace: str) -> FrozenNamespace:
    from windlass.dump.configuration import HASH_ANNOTATION
    from windlass.kube.freeze import OBEYED_ANNOTATION
    from windlass.kube.resources import LEASES

    state = await _state(client, namespace)
    leases = (await client.get(LEASES.namespace_collection(namespace)))["items"] or ()
    obeying: list[str] = []
    others: list[str] = []
    for lease in leases:
        annotations = lease["metadata"].get("annotations") or {}
        if HASH_ANNOTATION in annotations:
            (obeying if OBEYED_ANNOTATION in annotations else others).append(lease["metadata"]["name"])
    return FrozenNamespace(
        namespace, state.state, state.since, state.by, state.reason, tuple(sorted(obeying)), tuple(sorted(others))
    )


def freeze_lines(found: list[FrozenNamespace]) -> list[str]:
    """For people."""
    lines = []
    for part in found:
        by, why = (f" by {part.by}" if part.by else ""), (f": {part.reason}" if part.reason else "")
        roles = ", ".join(f"scheduler {name}" for name in part.schedulers) or "no scheduler; node agents are not listed"
        if part.state == "running":
            since = f"since {part.since}{by}" if part.since else "never frozen"
            lines.append(f"{part.namespace}: running ({roles}), {since}")
        else:
            lines.append(f"{part.namespace}: {part.state} ({roles}) since {part.since}{by}{why}")
        lines += [
            f"{part.namespace}: scheduler {name} still writes: it is older than `windlass freeze`. To stop it: "
            f"kubectl -n {part.namespace} scale deployment {name} --replicas=0"
            for name in part.not_obeying
        ]
    if any(part.state != "running" for part in found):
        lines.append("All writes stop within 5 s of that time. To resume: windlass freeze --off")
        lines.append(f"Not stopped: {NOT_STOPPED}.")
    return lines


async def _state(client: KubeClient, namespace: str) -> FreezeState:
    from windlass.kube.errors import NotFound
    from windlass.kube.freeze import FreezeState, decode_freeze, freeze_path
    from windlass.kube.request import Request

    try:
        return decode_freeze(await client.send(Request("GET", freeze_path(namespace))))
    except NotFound:
        return FreezeState()


async def user_name(client: KubeClient) -> str:
    """As the API server knows the caller; else the user of this machine."""
    from windlass.kube.errors import ApiError
    from windlass.kube.request import Request

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    request = Request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    try:
        found: dict[str, Any] = msgspec.json.decode(await client.send(request))
        return str(found["status"]["userInfo"]["username"])
    except (ApiError, KeyError, TypeError):
        return f"{getpass.getuser()}@{socket.gethostname()}"
