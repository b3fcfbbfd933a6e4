"""`windlass up`: the embedded cluster, its scheduler and its page, until Ctrl-C.

Reads the command line, starts an `embedded.embedded_cluster.EmbeddedCluster`, serves `windlass.web`'s page beside it,
and prints where both are. Everything else happens there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.config_option import config_option, print_configuration, resolve_configuration
from windlass.cli.extras import require_extra
from windlass.cli.observation_source import open_prometheus
from windlass.cli.output import print_note
from windlass.cli.parameters import default_option
from windlass.cli.up_repair import repair
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web

    from windlass.embedded.embedded_cluster import EmbeddedCluster, EmbeddedClusterOptions
    from windlass.embedded.in_process_client import InProcessClient
    from windlass.embedded.runtime.fleet_nodes import FleetNode
    from windlass.embedded.server.listener import Listener
    from windlass.model.configuration import Settings
    from windlass.web.past_sources import PastSource

EXAMPLES = """\b
Examples:
  windlass up
  windlass up --fleet fleet.yaml --state ~/cluster
  windlass up --from dump/                        a simulated copy of a real cluster
  windlass up --gpus real --gpu-replicas 2        this machine's GPUs, pods as local processes

Exit codes: 0 stopped by SIGTERM, 130 by Ctrl-C, 2 wrong usage or bad input, 3 the state is damaged.
"""
PORT, PAGE_PORT = 7443, 7480
"""Tried first, so that addresses stay the same from run to run; if taken, any free port."""
MAX_DESCRIPTORS = 1 << 16
LOOPBACK = ("127.0.0.1", "::1", "localhost")
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("up", epilog=EXAMPLES)
@click.option("--write-kubeconfig", type=click.Path(path_type=Path), help="Where the kubeconfig goes.")
@click.option("--fleet", type=FILE, help="A Fleet that describes the machines. [default: one of everything]")
@click.option(
    "--from",
    "from_",
    type=click.Path(path_type=Path, exists=True),
    help="A dump: its nodes, queues and workloads as a simulated cluster.",
)
@config_option
@click.option("--state", type=click.Path(path_type=Path, file_okay=False), help="Keep the cluster here.")
@click.option(
    "--repair", is_flag=True, help="With --state: show what a damaged state has lost, and ask to go on without it."
)
@click.option("--yes", is_flag=True, help="With --repair: don't ask.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Of the API. [default: {PORT}, or any]")
@click.option("--page-port", type=click.IntRange(0, 65535), help=f"Of the page. [default: {PAGE_PORT}, or any]")
@default_option("--address", default="127.0.0.1", help="Where the API listens.")
@default_option(
    "--gpus",
    type=click.Choice(["simulated", "real"]),
    default="simulated",
    help="real: this machine's GPUs. Pods then run as local processes: commands run on this host.",
)
@default_option(
    "--gpu-replicas",
    type=click.IntRange(1, 48),
    default=1,
    help="With --gpus real: how many pods may share each GPU.",
)
@click.option("--mps", is_flag=True, help="With --gpu-replicas: share by MPS instead of time-slicing.")
@click.option("--no-page", is_flag=True, help="Only the API.")
@click.option(
    "--prometheus",
    default="",
    metavar="URL",
    help="For gates of the operator, and what GPUs do.",
)
def up(**given: Any) -> int:
    """A working GPU cluster on this machine: the Kubernetes API, nodes, Windlass's scheduler and a page to watch it.

    The nodes are simulated unless --gpus real is given. Nothing is kept after Ctrl-C unless --state is given.
    """
    _check(given)
    require_extra("up", "windlass up")
    if given["gpus"] == "real":
        require_extra("node", "--gpus real", "pynvml")
    if given["repair"]:
        repair(given["state"], given["yes"])
    code, is_idle = asyncio.run(_run(given))
    if not is_idle:
        # Everything is closed, but a kernel may still be compiling (on the very first start): don't wait for it.
        sys.stdout.flush()
        os._exit(code)
    return code


def _check(given: dict[str, Any]) -> None:
    if given["gpus"] == "real" and (given["fleet"] or given["from_"]):
        raise click.UsageError("--gpus real uses this machine as the node; --fleet and --from are for simulated nodes")
    if given["fleet"] and given["from_"]:
        raise click.UsageError("--from takes the nodes of the dump; leave out --fleet")
    if given["gpus"] != "real" and (given["gpu_replicas"] > 1 or given["mps"]):
        raise click.UsageError("--gpu-replicas and --mps are for --gpus real; a Fleet has its own `sharing`")
    if given["mps"] and given["gpu_replicas"] < 2:
        raise click.UsageError("--mps needs --gpu-replicas of 2 or more")
    if given["repair"] and given["state"] is None:
        raise click.UsageError("--repair needs --state")
    if given["yes"] and not given["repair"]:
        raise click.UsageError("--yes is for --repair")


async def _run(given: dict[str, Any]) -> tuple[int, bool]:
    """(exit code, whether the scheduler thread has ended)."""
    from windlass.embedded.embedded_cluster import EmbeddedCluster
    from windlass.embedded.malloc import limit_malloc
    from windlass.operator.embedded_thread import OperatorThread
    from windlass.scheduler.logs import set_up_logs
    from windlass.web.past_sources import past_source

    limit_malloc()
    _raise_descriptor_limit()
    set_up_logs("text", "warning")
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        asyncio.get_running_loop().add_signal_handler(number, _resolve, stopped, code)
    options, fill = _options(given)
    cluster = EmbeddedCluster(options)
    page: web.AppRunner | None = None
    operator: OperatorThread | None = None
    temporary = contextlib.ExitStack()
    try:
        await _start(cluster, given, fill)
        del options, fill  # they hold a second copy of what `--from` has read
        path = _kubeconfig_path(given)
        cluster.write_kubeconfig(path)
        history = None
        if not given["no_page"]:
            history = _history_folder(given["state"], temporary)
            past = past_source(history, open_prometheus(given["prometheus"], None))
            page = await _serve_page(cluster, given["page_port"], past)
        click.echo(f"kubectl   export KUBECONFIG={path}")
        click.echo(f"nodes     {cluster.summary()}")
        for line in cluster.notes():
            print_note(line)
        sys.stdout.flush()
        cluster.start_scheduler(history, given["prometheus"])
        if given["gpus"] == "simulated":
            operator = OperatorThread(cluster, given["prometheus"])
            operator.start_with_first_stack()
        code = await stopped
    finally:
        if operator is not None:
            await asyncio.to_thread(operator.stop)
        if page is not None:
            await page.cleanup()
        await cluster.stop()
        temporary.close()
    return code, cluster.scheduler is None or not cluster.scheduler.is_alive


def _raise_descriptor_limit() -> None:
    """Every connection and every process of a pod takes some; the usual 1024 are soon gone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _resolve(stopped: asyncio.Future[int], code: int) -> None:
    if not stopped.done():
        stopped.set_result(code)


def _options(
    given: dict[str, Any],
) -> tuple[EmbeddedClusterOptions, Callable[[InProcessClient], None] | None]:
    from windlass.cli.install_crds import crds
    from windlass.cli.install_operator_crds import operator_crds
    from windlass.embedded.embedded_cluster import EmbeddedClusterOptions

    nodes: list[FleetNode] = []
    fill: Callable[[InProcessClient], None] | None = None
    if given["from_"] is not None:
        nodes, fill = _copied(given["from_"])
    elif given["gpus"] == "simulated":
        nodes = _fleet(given["fleet"])
    options = EmbeddedClusterOptions(
        nodes=nodes,
        real_gpus=given["gpus"] == "real",
        gpu_replicas=given["gpu_replicas"],
        mps=given["mps"],
        crds=[*crds(), *operator_crds()],
        address=given["address"],
        port=PORT if given["port"] is None else given["port"],
        state_dir=given["state"],
        settings=_settings(given["config"]),
    )
    return options, fill


def _settings(path: Path | None) -> Settings:
    """The settings of this cluster's scheduler, as it publishes them."""
    import msgspec

    from windlass.embedded.scheduler_thread import with_default_scheduler

    configuration = resolve_configuration(path)
    settings = with_default_scheduler(configuration.settings)
    print_configuration(msgspec.structs.replace(configuration, settings=settings).used)
    return settings


def _fleet(path: Path | None) -> list[FleetNode]:
    from windlass.embedded.fleet import default_fleet, read_fleet
    from windlass.embedded.runtime.fleet_nodes import fleet_nodes

    return fleet_nodes(read_fleet(path) if path is not None else default_fleet(), time.time())


def _copied(dump: Path) -> tuple[list[FleetNode], Callable[[InProcessClient], None]]:
    from windlass.embedded.dump_import import read_dump_import

    copy = read_dump_import(dump, time.time())

    def fill(verbs: InProcessClient) -> None:
        for line in copy.create_all(verbs):
            print_note(line)

    return copy.nodes, fill


async def _start(
    cluster: EmbeddedCluster, given: dict[str, Any], fill: Callable[[InProcessClient], None] | None
) -> None:
    if given["address"] not in LOOPBACK:
        print_note(
            f"warning: listening on {given['address']}: every client with the kubeconfig's token has full "
            "access to this cluster"
        )
    if given["gpus"] == "real":
        print_note(
            "WARNING: --gpus real: every pod runs its command as a process of THIS machine, as this user, without a "
            "container. Everyone with the kubeconfig can run commands here."
        )
    try:
        await cluster.start(fill)
    except OSError as error:
        if not _is_about_listening(error):
            raise
        if error.errno != errno.EADDRINUSE or given["port"] is not None:
            port = PORT if given["port"] is None else given["port"]
            raise InputError(
                f"can't listen on {given['address']}:{port}: {error.strerror}",
                remedy="choose others with --address and --port",
            ) from None
        await cluster.listen(0)


def _is_about_listening(error: OSError) -> bool:
    known = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
    return isinstance(error, socket.gaierror) or (error.errno in known and error.filename is None)


def _kubeconfig_path(given: dict[str, Any]) -> Path:
    chosen: Path | None = given["write_kubeconfig"]
    if chosen is None:
        state: Path | None = given["state"]
        chosen = (state or Path("~/.windlass").expanduser()) / "kubeconfig"
    return Path(os.path.abspath(chosen))


def _history_folder(state: Path | None, temporary: contextlib.ExitStack) -> Path:
    """Where the page's past is: beside the state, or for as long as the cluster runs."""
    if state is not None:
        return state / "history"
    return Path(temporary.enter_context(tempfile.TemporaryDirectory(prefix="windlass-up-")))


async def _serve_page(cluster: EmbeddedCluster, port: int | None, past: PastSource | None) -> web.AppRunner:
    from aiohttp import web

    from windlass.web.one_time_links import PREFIX, OneTimeLinks
    from windlass.web.page import make_page

    links, hosts = OneTimeLinks(), set[str]()
    app = make_page(cluster.client, cluster.faults, links, lambda: hosts, past)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, keepalive_timeout=90)
    listener = await _listen(runner, port)
    chosen = listener.addresses[0][1]
    hosts |= {f"127.0.0.1:{chosen}", f"localhost:{chosen}"}
    links.address = f"http://127.0.0.1:{chosen}"
    cluster.server.mount(PREFIX, links.serve)
    click.echo(f"page      {links.create()}")
    return runner


async def _listen(runner: web.AppRunner, port: int | None) -> Listener:
    """On the given port, else on the default one, else on any free one."""
    from windlass.embedded.server.listener import Listener

    listener: Listener

    async def welcome(request: web.Request, response: web.StreamResponse) -> None:
        if response.status < 400:
            listener.welcome(request.protocol)

    async def close(app: web.Application) -> None:
        await listener.close()

    runner.app.on_response_prepare.append(welcome)
    runner.app.on_cleanup.append(close)
    await runner.setup()
    assert runner.server is not None  # after `setup`
    listener = Listener(runner.server)
    try:
        await listener.start("127.0.0.1", PAGE_PORT if port is None else port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or port is not None:
            raise InputError(
                f"the page can't listen on port {port}: {error.strerror}",
                remedy="choose another with --page-port",
            ) from None
        await listener.start("127.0.0.1", 0)
    return listener
