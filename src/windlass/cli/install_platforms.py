"""What differs between Kubernetes distributions and clouds for the node agent: `windlass install node --for NAME`.

Read by `install_node_manifests`. A platform says where the kubelet's files lie, which nodes have GPUs, on which of them
the platform runs a device plugin itself (the agent stays away from those), and which objects its admission asks for.
"""

from __future__ import annotations

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_PRESENT_LABEL
from windlass.model.names.others import NFD_NVIDIA_3D_LABEL, NFD_NVIDIA_LABEL, NFD_NVIDIA_VGA_LABEL
from windlass.model.unstructured import Unstructured

GPU_LABELS = (NFD_NVIDIA_LABEL, NFD_NVIDIA_3D_LABEL, NFD_NVIDIA_VGA_LABEL, GPU_PRESENT_LABEL)
"""Any of them says that the node has an NVIDIA GPU: NFD's, by PCI class or without, and the GPU operator's."""


class NodeLabel(msgspec.Struct, frozen=True):
    """A condition on a node's label; without values, the label has to be there."""

    key: str
    values: tuple[str, ...] = ()
    operator: str = "In"

    def expression(self) -> Unstructured:
        if not self.values:
            return {"key": self.key, "operator": "Exists"}
        return {"key": self.key, "operator": self.operator, "values": list(self.values)}


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    note: str
    """What the platform does by itself, and what is left to do."""
    gpu_labels: tuple[NodeLabel, ...] = ()
    """More ways to recognise a node with a GPU."""
    every_node: tuple[NodeLabel, ...] = ()
    """What must hold of every node beside that."""
    host_paths: tuple[tuple[str, str], ...] = ()
    """Name of a volume → its path on the host, where that isn't the usual one."""
    needs_quota: bool = False
    """Whether pods of the highest priority need a ResourceQuota outside kube-system."""
    cluster_role: str = ""
    """What lets the account run privileged pods, where the namespace's label does not."""

    def node_selector_terms(self, *, any_gpu_label: bool) -> list[Unstructured]:
        """Without `any_gpu_label` another selector says which nodes have GPUs."""
        usual = tuple(NodeLabel(key, ("true",)) for key in GPU_LABELS)
        every = [each.expression() for each in self.every_node]
        if not any_gpu_label:
            return [{"matchExpressions": every}] if every else []
        return [{"matchExpressions": [label.expression(), *every]} for label in (*usual, *self.gpu_labels)]


_GKE = NodeLabel("gke-no-default-nvidia-gpu-device-plugin", ("true",))
PLATFORMS = {
    "": Platform(note=""),
    "kubeadm": Platform(
        note="the driver must be on the nodes; with containerd 2 or CRI-O nothing else is needed, with containerd 1.7 "
        "enable_cdi or NVIDIA's container toolkit",
    ),
    "k3s": Platform(
        note="the driver must be on the nodes; k3s finds NVIDIA's container toolkit at its start and makes the "
        "RuntimeClass nvidia; with containerd 2 the toolkit is not needed",
    ),
    "rke2": Platform(
        note="the driver must be on the nodes; RKE2 finds NVIDIA's container toolkit at its start; with containerd 2 "
        "the toolkit is not needed",
    ),
    "k0s": Platform(
        note="the driver must be on the nodes; the kubelet's files are in /var/lib/k0s/kubelet, its device plugins in "
        "/var/lib/kubelet",
        host_paths=(("pod-resources", "/var/lib/k0s/kubelet/pod-resources"),),
    ),
    "microk8s": Platform(
        note="the driver must be on the nodes; run `microk8s disable gpu` first, since its add-on is the GPU operator",
        host_paths=(("pod-resources", "/var/snap/microk8s/common/var/lib/kubelet/pod-resources"),),
    ),
    "eks": Platform(
        note="the AL2023 NVIDIA image brings driver and toolkit and no device plugin; nodes of Auto Mode bring one "
        "and are left out; Bottlerocket's NVIDIA images bring one too and have no label: leave them out by "
        "--node-selector",
        every_node=(NodeLabel("eks.amazonaws.com/compute-type", ("auto",), "NotIn"),),
    ),
    "gke": Platform(
        note="GKE installs the driver (in /home/kubernetes/bin/nvidia) and runs its own plugin on nodes without the "
        "label gke-no-default-nvidia-gpu-device-plugin=true: make node pools with it, the agent runs there",
        gpu_labels=(NodeLabel("cloud.google.com/gke-accelerator"),),
        every_node=(_GKE,),
        needs_quota=True,
    ),
    "aks": Platform(
        note="the image of a GPU node pool brings driver and toolkit, unless it was made with --gpu-driver none; pools "
        "with the managed GPU experience have a plugin and an exporter and are left out",
        gpu_labels=(NodeLabel("kubernetes.azure.com/accelerator", ("nvidia",)), NodeLabel("accelerator", ("nvidia",))),
        every_node=(NodeLabel("kubernetes.azure.com/dcgm-exporter", ("enabled",), "NotIn"),),
    ),
    "openshift": Platform(
        note="the driver comes in a container (/run/nvidia/driver): keep the GPU operator's and switch its plugin, "
        "labels, MIG manager and exporter off, or build one for the nodes' RHCOS",
        cluster_role="system:openshift:scc:privileged",
    ),
}
"""`''` is the default: any distribution with the usual paths."""


def find_platform(name: str) -> Platform:
    if name not in PLATFORMS:
        known = ", ".join(sorted(set(PLATFORMS) - {""}))
        raise InputError(f"'{name[:64]}' is not a known distribution", path="--for", remedy=f"there are {known}")
    return PLATFORMS[name]
