"""Rules about images: CUDA against the nodes' drivers, and large ones that no node has pulled yet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.diagnose import nodes
from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.check.requests import pod_and_requests, requests_gpus
from windlass.diagnose.check.rule import INFO, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.unstructured import nested_string
from windlass.model.digits import is_digits
from windlass.model.node import Node
from windlass.model.pod import Pod

CUDA_TAG = re.compile(
    r"cuda[-_:]?v?(\d{1,2})\.(\d{1,2})|cu(\d{2})(\d)\b|(?<![\d.])(\d{2})\.(\d{1,2})(?:\.\d+)?-(?:cudnn|devel|base|runtime)"
)
LARGE = 4 * 1000**3
"""Size in bytes from which on a pull takes minutes."""
USUALLY_LARGE = re.compile(r"cuda|pytorch|tensorflow|nvcr\.io|vllm|triton|nemo|deepspeed|jax|tgi|sglang", re.I)


@rule("cuda-not-newer-than-driver", WARNING, "The image's CUDA is not newer than the nodes' drivers offer")
def cuda_not_newer(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for view in manifest.pods:
        if not requests_gpus(view) or not context.nodes:
            continue
        offered = max((_driver_cuda(node) for node in context.nodes), default=(0, 0))
        for path, container in view.containers():
            needed = cuda_version_of_image(nested_string(container, "image"))
            if needed and offered > (0, 0) and needed > offered:
                yield RuleFinding(
                    f"the image needs CUDA {needed[0]}.{needed[1]}, but the newest driver of the cluster offers "
                    f"{offered[0]}.{offered[1]}",
                    f"{path}.image",
                    "use an image for an older CUDA, or upgrade the driver",
                )


def cuda_version_of_image(image: str) -> tuple[int, int] | None:
    """The CUDA release in the image's name or tag; None if there is none."""
    found = CUDA_TAG.search(image)
    if not found:
        return None
    major, minor = next((a, b) for a, b in zip(found.groups()[::2], found.groups()[1::2], strict=True) if a)
    return int(major), int(minor)


def _driver_cuda(node: Node) -> tuple[int, int]:
    """The CUDA release that the node's driver offers, as feature discovery labels it."""
    labels = node.labels
    major = labels.get("nvidia.com/cuda.runtime-version.major") or labels.get("nvidia.com/cuda.runtime.major", "")
    minor = labels.get("nvidia.com/cuda.runtime-version.minor") or labels.get("nvidia.com/cuda.runtime.minor", "")
    return (int(major), int(minor)) if is_digits(major) and is_digits(minor) else (0, 0)


@rule("image-pre-pulled", INFO, "A large image is on the nodes already")
def image_pre_pulled(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    """Kubelets report their 50 largest images; a cluster whose nodes report none is not checked."""
    if not context.images:
        return
    for view in manifest.pods:
        read = pod_and_requests(view)
        if read is None or not requests_gpus(view):
            continue
        for path, container in view.containers():
            yield from _absent(nested_string(container, "image"), f"{path}.image", read[0], context)


def _absent(image: str, where: str, pod: Pod, context: CheckContext) -> Iterator[RuleFinding]:
    wanted = normalized_image_name(image)
    taking = [
        node.name for node in context.nodes if nodes.gpu_resources(node) and not nodes.selector_mismatches(node, pod)
    ]
    sizes = [size for node in context.images.values() if (size := node.get(wanted, 0))]
    lacking = [name for name in taking if wanted not in context.images.get(name, {})]
    if not image or not lacking:
        return
    remedy = "pre-pull it (a DaemonSet with that image), or use a mirror in the cluster"
    if max(sizes, default=0) >= LARGE:
        large = f"{max(sizes) / 1000**3:.0f} GB"
        message = f"the image ({large}) is missing on {len(lacking)} of {len(taking)} matching nodes"
        yield RuleFinding(f"{message}, such as {lacking[0]}: pulling it takes minutes", where, remedy, WARNING)
    elif not sizes and USUALLY_LARGE.search(image):
        yield RuleFinding(
            f"the image is on none of {len(taking)} matching nodes, and such images are usually large",
            where,
            remedy,
        )


def normalized_image_name(image: str) -> str:
    """The name as the container runtime lists it: with registry and tag."""
    first, slash, _ = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif "." not in first and ":" not in first and first != "localhost":
        image = f"docker.io/{image}"
    return image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"
