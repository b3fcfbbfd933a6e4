"""`windlass observe`: the page for a real cluster, until SIGTERM or Ctrl-C. It reads, and writes nothing.

Reads the command line; `web.cluster_objects` watches the cluster, `web.page` serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass.cli.config_option import config_option, resolve_configuration
from windlass.cli.observation_source import open_prometheus
from windlass.cli.parameters import default_option
from windlass.cli.replica_options import Address
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web

    from windlass.kube.client import KubeClient
    from windlass.kube.client_config import ClientConfig
    from windlass.web.cluster_objects import ClusterObjects
    from windlass.web.past_sources import PastSource

EXAMPLES = """\b
Examples:
  windlass observe --context production --prometheus http://prometheus:9090
  windlass observe --listen :8443 --tls-cert tls.crt --tls-key tls.key --history /history
  windlass observe --listen :8080 --behind-proxy --history /history

On this machine alone (the default), the page opens by a link that works once, and shows what your kubeconfig may read.
Under an address that others reach, each viewer needs a token of the cluster, and sees the work of the namespaces whose
pods the token may list; of the rest, sums without names.
"""
SYNC_SECONDS = 60.0


@click.command("observe", epilog=EXAMPLES)
@kubeconfig_options
@default_option("--listen", type=Address(), default="127.0.0.1:7480", help="Where the page is served.")
@click.option(
    "--history",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that `windlass scheduler --history` writes, for the past.",
)
@click.option("--prometheus", default="", metavar="URL", help="A Prometheus, for the past and for curves of GPUs.")
@click.option(
    "--prometheus-token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A bearer token for it.",
)
@config_option
@click.option("--tls-cert", type=click.Path(dir_okay=False, path_type=Path), help="Certificate of the page.")
@click.option("--tls-key", type=click.Path(dir_okay=False, path_type=Path), help="Its private key.")
@click.option("--behind-proxy", is_flag=True, help="Serve plain HTTP: a proxy in front ends TLS.")
@default_option("--log-format", type=click.Choice(["json", "text"]), default="text")
@default_option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning")
def observe(**given: Any) -> None:
    """Serve the page of a real cluster: every GPU, what waits and why, and the past. Nothing is changed."""
    from windlass.kube.client_config import load_client_config
    from windlass.scheduler.logs import set_up_logs
    from windlass.web.past_sources import past_source

    tls = _tls(given["tls_cert"], given["tls_key"])
    is_local = _is_loopback(given["listen"][0])
    if not is_local and tls is None and not given["behind_proxy"]:
        remedy = "give --tls-cert and --tls-key, or --behind-proxy where a proxy in front ends TLS"
        raise InputError("viewers would send their tokens unencrypted", remedy=remedy)
    past = past_source(given["history"], open_prometheus(given["prometheus"], given["prometheus_token_file"]))
    prices = resolve_configuration(given["config"]).settings.gpu_hour_micro_prices
    access = load_client_config(given["kubeconfig"], given["context"])
    set_up_logs(given["log_format"], given["log_level"])
    asyncio.run(_serve(access, given["listen"], _Past(past, prices), tls, is_local and not given["behind_proxy"]))


class _Past(NamedTuple):
    source: PastSource | None
    micro_prices: dict[str, int]


async def _serve(
    access: ClientConfig,
    listen: tuple[str, int],
    past: _Past,
    tls: ssl.SSLContext | None,
    by_link: bool,
) -> None:
    from aiohttp import web

    from windlass.kube.client import KubeClient
    from windlass.web.cluster_objects import ClusterObjects

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with KubeClient(access) as client:
        objects = ClusterObjects(client)
        watching = asyncio.create_task(objects.informers.run())
        try:
            await _wait_for_objects(objects, access.server)
            app, announce = _application(client, objects, past, by_link)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, keepalive_timeout=90)
            await runner.setup()
            port = await _listen(runner, listen, tls)
            announce(f"{'https' if tls else 'http'}://{_shown_host(listen[0])}:{port}")
            await stop.wait()
            await runner.cleanup()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _wait_for_objects(objects: ClusterObjects, server: str) -> None:
    try:
        async with asyncio.timeout(SYNC_SECONDS):
            await objects.informers.synced.wait()
    except TimeoutError:
        refused = [informer.resource.plural for informer in objects.informers.informers if informer.forbidden]
        reason = f"it may not list {', '.join(refused)}" if refused else "it does not answer"
        raise InputError(
            f"the objects of {server} could not be read within {SYNC_SECONDS:.0f} s: {reason}",
            remedy="`windlass install observe` prints the rights that it needs",
        ) from None


def _application(
    client: KubeClient, objects: ClusterObjects, past: _Past, by_link: bool
) -> tuple[web.Application, Any]:
    """The application, and what tells the user its address."""
    from windlass.web.one_time_links import OneTimeLinks
    from windlass.web.page import make_application, make_page
    from windlass.web.token_access import TokenAccess
    from windlass.web.viewers import Viewers

    if not by_link:
        names = Viewers(client, lambda: {tree["metadata"]["name"] for tree in objects.list("namespaces")})
        return make_application(objects, None, TokenAccess(names), *past), _announce
    links, hosts = OneTimeLinks(), set[str]()

    def announce(address: str) -> None:
        port = address.rpartition(":")[2]
        hosts.update({address.partition("//")[2], f"localhost:{port}"})
        links.address = address
        _announce(links.create())

    return make_page(objects, None, links, lambda: hosts, *past), announce


def _announce(address: str) -> None:
    click.echo(f"page      {address}")


async def _listen(runner: web.AppRunner, listen: tuple[str, int], tls: ssl.SSLContext | None) -> int:
    from aiohttp import web

    site = web.TCPSite(runner, *listen, ssl_context=tls)
    try:
        await site.start()
    except OSError as error:
        remedy = "choose another address with --listen"
        raise InputError(f"the page can't listen on port {listen[1]}: {error.strerror}", remedy=remedy) from None
    return int(runner.addresses[0][1])


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError("--tls-cert and --tls-key belong together")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"not a certificate with its key: {error}", file=str(certificate)) from None
    return context


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
