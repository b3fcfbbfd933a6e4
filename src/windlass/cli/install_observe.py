"""`windlass install observe`: the rights that `windlass observe` needs in a cluster, printed.

It lists and watches what the page shows (`web.cluster_objects`), and asks the API server who a viewer is and what the
viewer may list. It may write nothing.
"""

from __future__ import annotations

import click

from windlass.cli.install_crds import MANAGED_LABELS
from windlass.cli.install_manifests import managed_object, namespace_object
from windlass.cli.install_rbac import READS, Rule, rule
from windlass.cli.parameters import default_option
from windlass.model.unstructured import Unstructured

NAME = "windlass-observe"
RBAC = "rbac.authorization.k8s.io"
EXAMPLES = """\b
Examples:
  windlass install observe | kubectl apply --server-side -f -
"""


def observe_rules() -> list[Rule]:
    """Of the ClusterRole."""
    from windlass.web.cluster_objects import KINDS

    reads: dict[str, list[str]] = {}
    for kind in KINDS:
        reads.setdefault(kind.group, []).append(kind.plural)
    return [
        *(rule(group, plurals, READS) for group, plurals in reads.items()),
        rule("authentication.k8s.io", ["tokenreviews"], ("create",)),
        rule("authorization.k8s.io", ["subjectaccessreviews"], ("create",)),
    ]


def observe_manifests(namespace: str) -> list[Unstructured]:
    role = managed_object(f"{RBAC}/v1", "ClusterRole", NAME, MANAGED_LABELS)
    binding = managed_object(f"{RBAC}/v1", "ClusterRoleBinding", NAME, MANAGED_LABELS)
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    return [
        namespace_object(namespace, "restricted"),
        managed_object("v1", "ServiceAccount", NAME, MANAGED_LABELS, namespace),
        {**role, "rules": observe_rules()},
        {**binding, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME}, "subjects": [subject]},
    ]


@click.command("observe", epilog=EXAMPLES)
@default_option("-n", "--namespace", default="windlass-system", help="Where its ServiceAccount is.")
def install_observe(namespace: str) -> None:
    """Print the account and the rights of `windlass observe`: it reads, and writes nothing."""
    from windlass.cli.install import to_yaml

    click.echo(to_yaml(observe_manifests(namespace)), nl=False)
