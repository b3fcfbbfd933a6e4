"""`windlass install node` and `windlass uninstall node`: the node agent into a cluster, printed; and out again."""

from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.cluster_option import run_with_client
from windlass.cli.errors import check_names
from windlass.cli.install_node_manifests import AGENT_VARIABLES, NodeInstallOptions, node_manifests
from windlass.cli.install_platforms import PLATFORMS, find_platform
from windlass.cli.output import print_note
from windlass.cli.parameters import NameList, default_option
from windlass.cli.scheduler import kubeconfig_options
from windlass.model.errors import InputError
from windlass.node.agent_parts import PARTS

EXAMPLES = """\b
Examples:
  windlass install node | kubectl apply --server-side -f -
  windlass install node --for gke | kubectl apply --server-side -f -
  windlass install node --runtime-class nvidia --config config.yaml --parts plugin,exporter
  windlass install node --config configs/ --default-config whole --arg=--honor-renames
"""


@click.command("node", epilog=EXAMPLES)
@default_option("-n", "--namespace", default="windlass-node", help="Where it runs.")
@click.option("--image", default="", help="The container image. [default: windlass-node:VERSION]")
@click.option("--image-pull-policy", type=click.Choice(["IfNotPresent", "Always", "Never"]), default="IfNotPresent")
@click.option(
    "--for",
    "platform",
    type=click.Choice(sorted(set(PLATFORMS) - {""})),
    default=None,
    help="The distribution or cloud: its paths, its GPU nodes, and what it runs itself.",
)
@default_option("--parts", type=NameList(), default=",".join(PARTS), help="What to run.")
@default_option("--label-sink", type=click.Choice(["node", "node-feature", "file"]), default="node")
@click.option("--runtime-class", default="", help="The runtime that brings the driver in, such as nvidia.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True),
    help="A device plugin config, v1; or a folder of them, of which a node's label picks one by its name "
    "(nvidia.com/device-plugin.config).",
)
@click.option("--default-config", default="", help="The config of the folder that nodes without the label get.")
@click.option("--arg", "arguments", multiple=True, help="One more argument of `windlass node run`, as often as needed.")
@click.option("--node-selector", default="", help="Labels such as pool=gpu, instead of NFD's PCI labels.")
@click.option("--pod-monitor", is_flag=True, help="Add a PodMonitor, for Prometheus's operator.")
@click.option("--history", is_flag=True, help="Keep 30 days of the GPUs' samples on each node, some 5 MB for 8 GPUs.")
@click.option(
    "--mount-host-root",
    is_flag=True,
    help="Mount the host's file system, for hosts where /proc/1/root can't be read.",
)
def install_node(
    namespace: str,
    image: str,
    image_pull_policy: str,
    parts: tuple[str, ...],
    label_sink: str,
    runtime_class: str,
    config: Path | None,
    default_config: str,
    arguments: tuple[str, ...],
    node_selector: str,
    pod_monitor: bool,
    history: bool,
    mount_host_root: bool,
    platform: str | None,
) -> None:
    """Print the manifests that put the node agent onto every node with NVIDIA GPUs. Nothing is applied."""
    from windlass.cli.install import to_yaml

    check_names("part", parts, PARTS)
    choices = NodeInstallOptions(
        namespace=namespace,
        image=image or NodeInstallOptions().image,
        pull_policy=image_pull_policy,
        parts=parts,
        label_sink=label_sink,
        runtime_class=runtime_class,
        config=_checked(config) if config is not None and config.is_file() else "",
        configs=_named(config, default_config) if config is not None and config.is_dir() else (),
        default_config=default_config,
        arguments=arguments,
        node_selector=_labels(node_selector),
        pod_monitor=pod_monitor,
        history=history,
        mount_host_root=mount_host_root,
        platform=platform or "",
    )
    if default_config and not choices.configs:
        raise click.UsageError("--default-config is for a --config that is a folder")
    if choices.platform:
        print_note(find_platform(choices.platform).note)
    click.echo(to_yaml(node_manifests(choices)), nl=False)


@click.command("node")
@kubeconfig_options
@default_option("-n", "--namespace", default="windlass-node", help="Where it runs.")
def uninstall_node(kubeconfig: str, context: str, namespace: str) -> None:
    """Remove what `windlass install node` made. Labels on nodes and running pods are left alone."""
    from windlass.cli.install import remove_objects

    objects = node_manifests(NodeInstallOptions(namespace=namespace, config="{}"))
    run_with_client(kubeconfig, context, lambda client: remove_objects(client, objects))
    print_note("labels on nodes stay; the kubelet forgets the resource five minutes after the agent")


def _checked(path: Path) -> str:
    """The config's text, after it was read as the agent will read it."""
    from windlass.node.config_source import read_yaml
    from windlass.sharing.plugin_config import resolve_config

    try:
        resolve_config(read_yaml(path), AGENT_VARIABLES, {})
    except InputError as error:
        raise error.with_context(file=str(path)) from None
    return path.read_text(encoding="utf-8")


def _named(folder: Path, default: str) -> tuple[tuple[str, str], ...]:
    """Name and text of every config of a folder; the default has to be one of them."""
    from windlass.node.named_configs import EMPTY, NamedConfigs, choose_config_name

    names = NamedConfigs(folder, folder).names()
    try:
        choose_config_name("", names, default, (EMPTY,))
    except InputError as error:
        raise error.with_context(file=str(folder)) from None
    return tuple((name, _checked(folder / name)) for name in sorted(names))


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"--node-selector '{text}' is not key=value,…")
    return tuple((name, value) for name, _, value in pairs)
