"""`windlass install operator` and `windlass uninstall operator`: the operator into a cluster, printed; and out
again.

Its rights are as small as they can be: what it lists and watches (`operator.resources`), and what it writes
(`operator.apply`).
"""

from __future__ import annotations

import click
import msgspec

from windlass.cli.cluster_option import run_with_client
from windlass.cli.install_manifests import InstallOptions, Role, namespace_object, role_manifests
from windlass.cli.install_operator_crds import operator_crds
from windlass.cli.install_rbac import READS, Rule, freeze_rule, rule
from windlass.cli.output import print_note
from windlass.cli.parameters import default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.dump.configuration import CONFIG_MAP_SUFFIX
from windlass.kube.resources import WATCHED_KINDS, Resource
from windlass.model.unstructured import Unstructured
from windlass.operator.resources import (
    CANARY_NAMESPACE,
    DAEMON_SETS,
    JOBS,
    OWNER_KINDS,
    SCHEDULER,
    STATEFUL_SETS,
    WATCHED_BY_OPERATOR,
)

_OTHERS_WORK = ("StatefulSet", *OWNER_KINDS)
NAME = "windlass-operator"
PORT = 10260
DRIVER_NAMESPACE = "windlass-node"
EXAMPLES = """\b
Examples:
  windlass install operator | kubectl apply --server-side -f -
  windlass install operator --prometheus http://prometheus.monitoring:9090
"""


class OperatorInstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    install: InstallOptions = InstallOptions()
    driver_namespace: str = DRIVER_NAMESPACE
    canary_namespace: str = CANARY_NAMESPACE
    workload_namespaces: tuple[str, ...] = ()
    """Where images of StatefulSets may be changed."""
    prometheus: str = ""


def cluster_rules() -> list[Rule]:
    """Of the ClusterRole. Nodes are patched, since taints, labels and requests to agents are there."""
    ours = ["gpustacks", "gpunodes", "fleetchanges", "gpurepairs"]
    return [
        rule("", ["nodes", "pods"], READS),
        rule("apps", ["daemonsets"], READS),
        *(rule(kind.group, [kind.plural], READS) for kind in WATCHED_BY_OPERATOR if kind.kind in _OTHERS_WORK),
        rule("kueue.x-k8s.io", ["workloads"], (*READS, "patch")),  # stops and starts admitted work
        *_reads_of_the_engine(),
        rule("windlass.dev", ours, READS),
        rule("nvidia.com", ["nvidiadrivers"], (*READS, "create", "delete")),
        rule("", ["nodes", "nodes/status"], ("patch",)),
        rule("", ["pods/eviction"], ("create",)),
        rule("", ["pods"], ("patch",)),  # tells them when they have to leave
        rule("windlass.dev", ["gpunodes", "gpurepairs"], ("create",)),
        rule("windlass.dev", [f"{name}/status" for name in ours], ("update",)),
        rule("events.k8s.io", ["events"], ("create", "patch")),
    ]


def _reads_of_the_engine() -> list[Rule]:
    """What else the engine reads, which is asked whether work would start elsewhere."""
    watched = {(kind.group, kind.plural) for kind in WATCHED_BY_OPERATOR}
    plurals: dict[str, set[str]] = {}
    for kind in WATCHED_KINDS:
        if (kind.group, kind.plural) not in watched:
            plurals.setdefault(kind.group, set()).add(kind.plural)
    return [rule(group, sorted(found), ("list",)) for group, found in sorted(plurals.items())]


def operator_manifests(choices: OperatorInstallOptions) -> list[Unstructured]:
    """All but the CRDs."""
    options = choices.install
    lease = "coordination.k8s.io"
    own_rules = (
        rule(lease, ["leases"], ("create",)),
        rule(lease, ["leases"], ("get", "update"), [NAME]),
        freeze_rule(),
        rule("", ["configmaps"], ("get",), [f"{SCHEDULER}{CONFIG_MAP_SUFFIX}"]),  # how the scheduler decides
    )
    arguments = (
        "operator",
        f"--listen=:{PORT}",
        f"--lease-namespace={options.namespace}",
        f"--driver-namespace={choices.driver_namespace}",
        f"--canary-namespace={choices.canary_namespace}",
        *([f"--prometheus={choices.prometheus}"] if choices.prometheus else []),
    )
    role = Role(NAME, "operator", PORT, arguments, tuple(cluster_rules()), own_rules, ())
    return [
        namespace_object(options.namespace, "restricted"),
        namespace_object(choices.driver_namespace, "privileged"),
        namespace_object(choices.canary_namespace, "baseline"),
        *role_manifests(role, options),
        *_namespaced_rights("drivers", choices.driver_namespace, DAEMON_SETS, ("create", "delete"), choices),
        *_namespaced_rights("canary", choices.canary_namespace, JOBS, ("create", "delete"), choices),
        *(
            one
            for namespace in choices.workload_namespaces
            for one in _namespaced_rights("images", namespace, STATEFUL_SETS, ("patch",), choices)
        ),
    ]


def _namespaced_rights(
    part: str, namespace: str, resource: Resource, verbs: tuple[str, ...], choices: OperatorInstallOptions
) -> list[Unstructured]:
    """What is written in single namespaces alone: driver DaemonSets, Jobs of canary work, images of StatefulSets."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {
        "name": f"{NAME}-{part}",
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "windlass", "app.kubernetes.io/part-of": "windlass"},
    }
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": choices.install.namespace}]
    reference = {"apiGroup": rbac, "kind": "Role", "name": metadata["name"]}
    rules = [rule(resource.group, [resource.plural], verbs)]
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": subjects,
        },
    ]


@click.command("operator", epilog=EXAMPLES)
@default_option("-n", "--namespace", default="windlass-system", help="Where it runs.")
@click.option("--image", default="", help="The container image. [default: windlass:VERSION]")
@click.option("--image-pull-policy", type=click.Choice(["IfNotPresent", "Always", "Never"]), default="IfNotPresent")
@default_option("--replicas", type=click.IntRange(1, 10), default=2, help="One of them leads.")
@default_option("--driver-namespace", default=DRIVER_NAMESPACE, help="Where driver containers run.")
@default_option("--canary-namespace", default=CANARY_NAMESPACE, help="Where canary work runs.")
@click.option(
    "--workload-namespace",
    "workload_namespaces",
    multiple=True,
    metavar="NAME",
    help="Where FleetChanges may change images of StatefulSets. Repeatable.",
)
@click.option("--prometheus", default="", metavar="URL", help="Where gates' queries are asked.")
def install_operator(
    namespace: str,
    image: str,
    image_pull_policy: str,
    replicas: int,
    driver_namespace: str,
    canary_namespace: str,
    workload_namespaces: tuple[str, ...],
    prometheus: str,
) -> None:
    """Print the manifests that put the operator into a cluster, with its kinds. Nothing is applied."""
    from windlass.cli.install import to_yaml

    options = InstallOptions(
        namespace=namespace,
        image=image or InstallOptions().image,
        pull_policy=image_pull_policy,
        replicas=replicas,
    )
    choices = OperatorInstallOptions(
        install=options,
        driver_namespace=driver_namespace,
        canary_namespace=canary_namespace,
        workload_namespaces=workload_namespaces,
        prometheus=prometheus,
    )
    first, *rest = operator_manifests(choices)
    click.echo(to_yaml([first, *operator_crds(), *rest]), nl=False)


@click.command("operator")
@kubeconfig_options
@default_option("-n", "--namespace", default="windlass-system", help="Where it runs.")
@default_option("--driver-namespace", default=DRIVER_NAMESPACE, help="Where driver containers run.")
@default_option("--canary-namespace", default=CANARY_NAMESPACE, help="Where canary work runs.")
def uninstall_operator(
    kubeconfig: str, context: str, namespace: str, driver_namespace: str, canary_namespace: str
) -> None:
    """Remove the operator. Its kinds, their objects, drivers and all namespaces stay."""
    from windlass.cli.install import remove_objects

    options = InstallOptions(namespace=namespace)
    choices = OperatorInstallOptions(
        install=options, driver_namespace=driver_namespace, canary_namespace=canary_namespace
    )
    objects = [one for one in operator_manifests(choices) if one["kind"] != "Namespace"]
    run_with_client(kubeconfig, context, lambda client: remove_objects(client, objects))
    print_note("GPUStacks, FleetChanges and GPURepairs stay, and so do labels and taints on nodes")
