"""The topology manager's policy, from the kubelet's arguments and configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.node.host_root import HostRoot
from windlass.node.kubelet_policy import READ_AGAIN_SECONDS, KubeletPolicy, topology_manager_policy

KUBEADM = "var/lib/kubelet/config.yaml"
SINGLE = "single-numa-node"


def write(folder: Path, files: dict[str, str]) -> HostRoot:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return HostRoot(folder)


def kubelet(*arguments: str) -> dict[str, str]:
    return {"proc/1/comm": "init\n", "proc/77/comm": "kubelet\n", "proc/77/cmdline": "\0".join(("kubelet", *arguments))}


@pytest.mark.parametrize(
    ("files", "policy"),
    [
        ({}, ""),
        ({KUBEADM: "kind: KubeletConfiguration\n"}, "none"),
        ({KUBEADM: f"kind: KubeletConfiguration\ntopologyManagerPolicy: {SINGLE}\n"}, SINGLE),
        ({KUBEADM: '"topologyManagerPolicy": "restricted"  # as asked for\n'}, "restricted"),
        ({KUBEADM: f"# topologyManagerPolicy: {SINGLE}\n"}, "none"),
        ({"etc/kubernetes/kubelet/config.json": '{"a":1,"topologyManagerPolicy":"restricted"}'}, "restricted"),
        (kubelet(), "none"),
        ({**kubelet(f"--topology-manager-policy={SINGLE}"), KUBEADM: "topologyManagerPolicy: restricted"}, SINGLE),
        ({**kubelet("--config", "/etc/k.yaml"), "etc/k.yaml": "topologyManagerPolicy: restricted"}, "restricted"),
        (
            {**kubelet("--config=/etc/k.yaml"), "etc/k.yaml": "a: 1", KUBEADM: f"topologyManagerPolicy: {SINGLE}"},
            "none",
        ),
        (
            {
                **kubelet("--config=/etc/k.yaml", "--config-dir=/etc/k.d"),
                "etc/k.yaml": "topologyManagerPolicy: restricted",
                "etc/k.d/10-numa.conf": f"topologyManagerPolicy: {SINGLE}",
                "etc/k.d/20-other.conf": "maxPods: 100",
            },
            SINGLE,
        ),
    ],
)
def test_the_policy(tmp_path: Path, files: dict[str, str], policy: str) -> None:
    assert topology_manager_policy(write(tmp_path, files)) == policy


def test_it_is_read_again_after_a_while(tmp_path: Path) -> None:
    now = [0.0]
    policy = KubeletPolicy(write(tmp_path, {KUBEADM: "topologyManagerPolicy: restricted"}), lambda: now[0])
    assert policy.current() == "restricted"
    write(tmp_path, {KUBEADM: f"topologyManagerPolicy: {SINGLE}"})
    assert policy.current() == "restricted"
    now[0] = READ_AGAIN_SECONDS
    assert policy.current() == SINGLE
