"""`windlass install observe` and `windlass uninstall observe`: the page's server into a cluster, printed; and out.

It lists and watches what the page shows (`web.cluster_objects`), and asks the API server who a viewer is and what the
viewer may list. It may write nothing. The chart's `observe` part is written from these manifests.
"""

from __future__ import annotations

import click
import msgspec

from windlass.cli.cluster_option import run_with_client
from windlass.cli.install_manifests import InstallOptions, Role, namespace_object, role_manifests
from windlass.cli.install_rbac import READS, Rule, rule
from windlass.cli.parameters import default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.unstructured import Unstructured

NAME = "windlass-observe"
PORT = 7480
TLS_FOLDER, TLS_VOLUME = "/etc/windlass/tls", "tls"
TOKEN_FOLDER, TOKEN_VOLUME = "/etc/windlass/prometheus", "prometheus-token"
EXAMPLES = """\b
Examples:
  windlass install observe --prometheus http://prometheus.monitoring:9090 | kubectl apply --server-side -f -
  windlass install observe --tls-secret page-tls | kubectl apply --server-side -f -
"""


class ObserveInstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    install: InstallOptions = InstallOptions(replicas=1)
    prometheus: str = ""
    prometheus_token_secret: str = ""
    """A Secret with a `token`."""
    tls_secret: str = ""
    """A Secret of type kubernetes.io/tls; without one, a proxy in front ends TLS."""


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


def observe_role(choices: ObserveInstallOptions) -> Role:
    secrets = []
    arguments = ["observe", f"--listen=:{PORT}", "--log-format=json"]
    if choices.tls_secret:
        arguments += [f"--tls-cert={TLS_FOLDER}/tls.crt", f"--tls-key={TLS_FOLDER}/tls.key"]
        secrets.append((TLS_VOLUME, choices.tls_secret, TLS_FOLDER))
    else:
        arguments.append("--behind-proxy")
    if choices.prometheus:
        arguments.append(f"--prometheus={choices.prometheus}")
    if choices.prometheus_token_secret:
        arguments.append(f"--prometheus-token-file={TOKEN_FOLDER}/token")
        secrets.append((TOKEN_VOLUME, choices.prometheus_token_secret, TOKEN_FOLDER))
    return Role(
        NAME,
        "observe",
        PORT,
        tuple(arguments),
        tuple(observe_rules()),
        (),
        () if choices.prometheus else (443, 6443),
        secrets=tuple(secrets),
        scheme="HTTPS" if choices.tls_secret else "HTTP",
        is_critical=False,
    )


def observe_manifests(choices: ObserveInstallOptions) -> list[Unstructured]:
    namespace = namespace_object(choices.install.namespace, "restricted")
    return [namespace, *role_manifests(observe_role(choices), choices.install)]


@click.command("observe", epilog=EXAMPLES)
@default_option("-n", "--namespace", default="windlass-system", help="Where it runs.")
@click.option("--image", default="", help="The container image. [default: windlass:VERSION]")
@click.option("--image-pull-policy", type=click.Choice(["IfNotPresent", "Always", "Never"]), default="IfNotPresent")
@click.option("--prometheus", default="", metavar="URL", help="Where the past is read.")
@click.option("--prometheus-token-secret", default="", help="A Secret with the `token` for it.")
@click.option("--tls-secret", default="", help="A Secret of type kubernetes.io/tls. [default: a proxy ends TLS]")
def install_observe(
    namespace: str, image: str, image_pull_policy: str, prometheus: str, prometheus_token_secret: str, tls_secret: str
) -> None:
    """Print the manifests that put the page's server into a cluster: it reads, and writes nothing."""
    from windlass.cli.install import to_yaml

    if prometheus_token_secret and not prometheus:
        raise click.UsageError("--prometheus-token-secret is for --prometheus")
    options = InstallOptions(
        namespace=namespace, image=image or InstallOptions().image, pull_policy=image_pull_policy, replicas=1
    )
    choices = ObserveInstallOptions(
        install=options,
        prometheus=prometheus,
        prometheus_token_secret=prometheus_token_secret,
        tls_secret=tls_secret,
    )
    click.echo(to_yaml(observe_manifests(choices)), nl=False)


@click.command("observe")
@kubeconfig_options
@default_option("-n", "--namespace", default="windlass-system", help="Where it runs.")
def uninstall_observe(kubeconfig: str, context: str, namespace: str) -> None:
    """Remove the page's server. Its namespace stays."""
    from windlass.cli.install import remove_objects

    _, *objects = observe_manifests(ObserveInstallOptions(install=InstallOptions(namespace=namespace)))
    run_with_client(kubeconfig, context, lambda client: remove_objects(client, objects))
