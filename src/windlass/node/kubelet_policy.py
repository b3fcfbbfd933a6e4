"""The policy of the kubelet's topology manager, from the kubelet's own configuration on the host.

`reporter` publishes it on the Node, since the scheduler must not send a pod where the kubelet would refuse it. The
arguments of the kubelet's process name its configuration file and overrule it; where the process can't be seen, the
usual files are read. Expressions instead of a YAML parser, which would stay in the agent's memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from windlass.node.host_root import HostRoot

CONFIG_FILES = (
    "/var/lib/kubelet/config.yaml",  # kubeadm
    "/etc/kubernetes/kubelet/config.json",  # EKS
    "/etc/kubernetes/kubelet/kubelet-config.json",  # EKS on Amazon Linux 2
    "/home/kubernetes/kubelet-config.yaml",  # GKE
    "/etc/default/kubeletconfig.json",  # AKS
)
DEFAULT_POLICY = "none"
_FIELD = re.compile(r"(?:^|[{,])[ \t]*\"?topologyManagerPolicy\"?[ \t]*:[ \t]*[\"']?([A-Za-z-]+)", re.MULTILINE)
_FLAG, _CONFIG_FLAG, _FOLDER_FLAG = "--topology-manager-policy", "--config", "--config-dir"
READ_AGAIN_SECONDS = 300.0
"""A kubelet reads its configuration when it starts, which is rare, and looking for its process is work."""


class KubeletPolicy:
    """The policy, read again from time to time."""

    def __init__(self, root: HostRoot, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._read_at: float | None = None
        self._policy = ""

    def current(self) -> str:
        now = self._clock()
        if self._read_at is None or now >= self._read_at + READ_AGAIN_SECONDS:
            self._policy, self._read_at = topology_manager_policy(self._root), now
        return self._policy


def topology_manager_policy(root: HostRoot) -> str:
    """`none`, `best-effort`, `restricted` or `single-numa-node`; empty if the configuration can't be found."""
    arguments = _kubelet_arguments(root)
    given = _value_of(arguments, _FLAG)
    if given:
        return given
    named = _value_of(arguments, _CONFIG_FLAG)
    files = [named] if named else list(CONFIG_FILES)
    texts = [text for text in (_read(root, file) for file in files) if text][:1]
    texts += [_read(root, file) for file in _drop_ins(root, _value_of(arguments, _FOLDER_FLAG))]
    if not arguments and not texts:
        return ""
    found = [match[1] for text in texts for match in _FIELD.finditer(text)]
    return found[-1] if found else DEFAULT_POLICY


def _kubelet_arguments(root: HostRoot) -> list[str]:
    for process in root.glob("/proc/[0-9]*"):
        if root.read(f"{process}/comm") == "kubelet":
            return [part for part in root.read(f"{process}/cmdline").split("\0") if part]
    return []


def _value_of(arguments: list[str], flag: str) -> str:
    """The last value counts, as for the kubelet: `--flag=value` or `--flag value`."""
    value = ""
    for at, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            value = argument.partition("=")[2]
        elif argument == flag and at + 1 < len(arguments):
            value = arguments[at + 1]
    return value


def _drop_ins(root: HostRoot, folder: str) -> list[str]:
    """Files of `--config-dir`, in the order in which the kubelet merges them."""
    path = root.host_file(folder) if folder else None
    if path is None or not path.is_dir():
        return []
    return [f"{folder.rstrip('/')}/{file.name}" for file in sorted(path.glob("*.conf"))]


def _read(root: HostRoot, host_path: str) -> str:
    try:
        return root.host_file(host_path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
