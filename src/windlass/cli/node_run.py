"""`windlass node run`: reads the command line; `windlass.node.agent` runs the processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from windlass.cli.errors import check_names
from windlass.cli.extras import require_extra
from windlass.cli.node_options import FILE, FOLDER, hardware_options
from windlass.cli.parameters import NameList, default_option
from windlass.model.errors import InputError
from windlass.model.names.nvidia import DEVICE_PLUGIN_CONFIG_LABEL
from windlass.node.agent import AgentOptions, child_commands, clear_stale_label_files
from windlass.node.agent_parts import PARTS
from windlass.node.exporter.extra_labels import ALLOWED_VARIABLE, HPC_VARIABLE, POD_LABELS_VARIABLE
from windlass.node.options_validation import validate_options
from windlass.node.owners import TRUSTED_NAMESPACES
from windlass.node.supervisor import become_supervisor
from windlass.sharing.plugin_fields import ALIASES, PLUGIN_FIELDS

EXAMPLES = """\b
Examples:
  windlass node run --config-file config.yaml
  windlass node run --parts plugin,exporter --mig-strategy mixed
  windlass node run --fleet fleet.yaml --root sim --without-api --device-plugins sim/plugins
"""


def _interval() -> float:
    """dcgm-exporter's own variable, in its own unit."""
    text = os.environ.get("DCGM_EXPORTER_INTERVAL", "")
    if not text:
        return 30.0
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{text[:64]!r} is not a number of milliseconds", path="DCGM_EXPORTER_INTERVAL")
    return int(text) / 1000


def _extra_labels(options: dict[str, Any]) -> dict[str, str]:
    """dcgm-exporter's own flags, by their variables; taken out of the options."""
    given = {
        POD_LABELS_VARIABLE: "true" if options.pop("kubernetes_enable_pod_labels") else "",
        ALLOWED_VARIABLE: options.pop("kubernetes_pod_label_allowlist_regex"),
        HPC_VARIABLE: options.pop("hpc_job_mapping_dir"),
    }
    return {name: value for name, value in given.items() if value}


def plugin_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """NVIDIA's own flags, every one of them; each is also its environment variable."""
    for name in (*[field.flag for field in PLUGIN_FIELDS], *ALIASES):
        field = next(field for field in PLUGIN_FIELDS if field.flag == ALIASES.get(name, name))
        hint = f"As in NVIDIA's device plugin: {field.path} ({field.variables[0]})."
        command = click.option(name, name.lstrip("-").replace("-", "_"), hidden=name in ALIASES, help=hint)(command)
    return command


@click.command(epilog=EXAMPLES)
@hardware_options
@default_option("--parts", type=NameList(), default=",".join(PARTS), help="What to run.")
@click.option("--config-file", type=FILE, envvar="CONFIG_FILE", help="NVIDIA's device plugin config, v1.")
@click.option(
    "--config-file-srcdir",
    type=FOLDER,
    envvar="CONFIG_FILE_SRCDIR",
    help="Several configs by name instead, such as a mounted ConfigMap; the node's label picks one.",
)
@default_option(
    "--node-label",
    default=DEVICE_PLUGIN_CONFIG_LABEL,
    envvar="NODE_LABEL",
    help="The label that picks a config of --config-file-srcdir.",
)
@click.option("--default-config", default="", envvar="DEFAULT_CONFIG", help="The config of nodes without the label.")
@default_option(
    "--fallback-strategies",
    type=NameList(),
    default="named,single",
    envvar="FALLBACK_STRATEGIES",
    help="Without label and default: named (the one called default), single (the only one), empty (none).",
)
@click.option(
    "--honor-renames",
    is_flag=True,
    help="Keep rename, devices and names by pattern, which the original reads and ignores.",
)
@click.option("--mig-config", type=FILE, help="mig-parted's config. [default: layouts made for the GPUs at hand]")
@click.option("--counters", type=FILE, help="dcgm-exporter's counters file. [default: its default set]")
@default_option("--listen", default=":9400", envvar="DCGM_EXPORTER_LISTEN", help="Address of the exporter.")
@click.option(
    "--web-config-file",
    type=FILE,
    envvar="DCGM_EXPORTER_WEB_CONFIG_FILE",
    help="TLS and passwords on that address, as dcgm-exporter takes them.",
)
@click.option(
    "--interval",
    type=float,
    default=_interval,
    show_default="30, or DCGM_EXPORTER_INTERVAL, which counts milliseconds",
    help="Seconds between passes.",
)
@click.option(
    "--kubernetes-enable-pod-labels",
    is_flag=True,
    help=f"Labels of pods on their metrics, as in dcgm-exporter ({POD_LABELS_VARIABLE}).",
)
@click.option(
    "--kubernetes-pod-label-allowlist-regex",
    default="",
    help=f"Which labels of pods, as patterns with commas between them ({ALLOWED_VARIABLE}).",
)
@click.option(
    "--hpc-job-mapping-dir",
    default="",
    help=f"Folder on the host where an HPC scheduler writes the jobs of each GPU ({HPC_VARIABLE}).",
)
@click.option(
    "--history",
    type=FOLDER,
    help="Keep 30 days of the GPUs' samples in this folder, some 5 MB for 8 GPUs; `windlass node history` reads it.",
)
@default_option("--state", type=FOLDER, default="/run/windlass", help="Folder for the state that the parts share.")
@default_option("--device-plugins", type=FOLDER, default="/var/lib/kubelet/device-plugins")
@click.option(
    "--kubelet-socket",
    default=lambda: os.environ.get("KUBELET_SOCKET"),
    help="Where to register (KUBELET_SOCKET); nowhere if it is empty. [default: kubelet.sock in --device-plugins]",
)
@click.option(
    "--pod-resources",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/pod-resources/kubelet.sock",
    envvar="DCGM_POD_RESOURCES_KUBELET_SOCKET",
)
@default_option("--cdi-folder", type=FOLDER, default="/var/run/cdi")
@click.option(
    "--cdi-disable-hooks",
    type=NameList(),
    envvar="CDI_DISABLE_HOOKS",
    help="Hooks to leave out of CDI specs: create-symlinks, update-ldcache, all.",
)
@click.option("--kubeconfig", default="", help="How to reach the API server. [default: as kubectl, or the pod's own]")
@click.option("--without-api", is_flag=True, help="Talk to no API server: labels go to NFD's file.")
@default_option(
    "--label-sink",
    type=click.Choice(["node-feature", "node", "file"]),
    default="node-feature",
    help="Where labels go.",
)
@default_option("--namespace", default="windlass-system", help="Of the NodeFeature object.")
@default_option(
    "--trusted-namespaces",
    type=NameList(),
    default=",".join(TRUSTED_NAMESPACES),
    help="Where a DaemonSet of another project may own the job of a part; nobody but administrators may write there.",
)
@default_option(
    "--hostname-label",
    type=click.Choice(["Hostname", "hostname"]),
    default="Hostname",
    help="The label by which metrics name the node: dcgm-exporter wrote Hostname up to 4.8.2, hostname since.",
)
@click.option(
    "--time-slice",
    type=click.Choice(["default", "short", "medium", "long"]),
    default=None,
    help="How long a turn lasts where GPUs are time-sliced. [default: as the driver has it]",
)
@click.option("--quiet-seconds", type=float, default=30.0, hidden=True)
@click.option("--reading-seconds", type=float, default=5.0, hidden=True)
@plugin_flags
def run(**options: Any) -> None:
    """Run the agent of this node: two processes under a supervisor, until a signal ends it.

    The plugin alone decides what the kubelet is told; exporter, labels and MIG manager run beside it, and none of them
    can take the node's GPUs away. Each part can be left out, here or by the node's nvidia.com/gpu.deploy.* labels, and
    refuses to start where another owner of its job is live. A wrong configuration at the first start is an error
    (exit 2), and so is a node without a driver (exit 3) unless failOnInitError is false; later the last good
    configuration stays in force, and a driver that went away is waited for.
    """
    require_extra("node", "windlass node run")
    parts = options.pop("parts")
    check_names("part", parts, PARTS)
    names = [flag.lstrip("-").replace("-", "_") for flag in (*[field.flag for field in PLUGIN_FIELDS], *ALIASES)]
    given = {f"--{name.replace('_', '-')}": options.pop(name) for name in names}
    flags = {name: value for name, value in given.items() if value is not None}
    socket = options["kubelet_socket"]
    options["kubelet_socket"] = Path(socket) if socket is not None else None
    options["time_slice"] = options["time_slice"] or ""
    options["cdi_disable_hooks"] = options["cdi_disable_hooks"] or ()
    options["extra_labels"] = _extra_labels(options)
    agent = AgentOptions(parts=frozenset(parts), flags=flags, **options)
    validate_options(agent)
    clear_stale_label_files(agent)
    become_supervisor(child_commands(agent))
