"""`windlass page`: a new link to the page of the cluster that `windlass up` runs. Each link opens it once."""

from __future__ import annotations

import click

from windlass.cli.embedded_cluster import embedded_cluster_options, request_embedded_cluster

EXAMPLES = """\b
Examples:
  windlass page
  windlass page --kubeconfig ~/cluster/kubeconfig

The kubeconfig is the one that `windlass up` wrote. Exit codes: 0 done, 2 bad input, 3 no such cluster or no page.
"""
PATH = "/windlass/page"


@click.command("page", epilog=EXAMPLES)
@embedded_cluster_options
def page(kubeconfig: str, kube_context: str) -> None:
    """Print a new link to the page of the cluster that `windlass up` runs.

    A link opens the page once and for one browser, which keeps a cookie from then on.
    """
    absent = "serves no page: it is not a cluster of `windlass up`, or was started with --no-page"
    click.echo(request_embedded_cluster((kubeconfig, kube_context), "POST", PATH, not_found_message=absent)["url"])
