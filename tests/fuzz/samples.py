"""Right inputs that the fuzzer starts from: objects of every kind, clusters, configurations and scenarios."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random
from typing import Any

import yaml
from tests.embedded.api import custom_samples
from tests.embedded.api.rich_samples import RICH_CLUSTER_WIDE, RICH_NAMESPACED
from tests.embedded.api.samples import CLUSTER_WIDE, NAMESPACED
from tests.invariants.crowds import bystanders, crowd
from tests.model.kueue_samples import ADMITTED, QUEUE_OBJECTS, WORKLOAD
from tests.model.owner_samples import GROUPS, KUEUE_CONFIGURATION, OWNERS, RULES, SCHEDULER_CONFIGURATION

from windlass.model.unstructured import Unstructured

ROOT = Path(__file__).parents[2]
BUILT_IN: tuple[Unstructured, ...] = (*CLUSTER_WIDE, *NAMESPACED, *RICH_CLUSTER_WIDE, *RICH_NAMESPACED)
"""Objects that the embedded API server takes as they are."""
CUSTOM: tuple[Unstructured, ...] = (custom_samples.definition(), *custom_samples.GOOD)
DECIDED: tuple[Unstructured, ...] = (*QUEUE_OBJECTS, WORKLOAD, ADMITTED, *OWNERS, *GROUPS, *RULES)
"""Objects that the engine reads."""
PLUGIN_CONFIG: Unstructured = {
    "version": "v1",
    "flags": {"migStrategy": "mixed", "failOnInitError": True, "plugin": {"passDeviceSpecs": False}},
    "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4, "devices": ["0", "1"]}]}},
}
MIG_CONFIG: Unstructured = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "mixed": [{"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "3g.40gb": 1}}],
    },
}
KUBECONFIG: Unstructured = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": "t", "exec": {"command": "true", "apiVersion": "v1", "args": ["a"]}}}],
}
COUNTERS = "# comment\nDCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).\nDCGM_FI_DEV_FB_USED, gauge, Used\n"


def cluster(rng: Random) -> list[Unstructured]:
    """A small cluster as somebody's dump would have it."""
    return [*crowd(rng), *(bystanders(rng) if rng.random() < 0.2 else [])]


@functools.cache
def scenarios() -> tuple[tuple[str, Any], ...]:
    """Name and tree of each small scenario."""
    files = sorted((ROOT / "docs" / "scenarios").glob("*.yaml"))
    return tuple((file.name, _load(file)) for file in files if file.stat().st_size < 3000)


@functools.cache
def configurations() -> tuple[tuple[str, Any], ...]:
    """Which reader takes it, and a tree that it reads."""
    return (
        ("configuration", KUEUE_CONFIGURATION),
        ("configuration", SCHEDULER_CONFIGURATION),
        ("fleet", _load(ROOT / "examples" / "fleet.yaml")),
        ("fleet", _load(ROOT / "src" / "windlass" / "embedded" / "fleet.yaml")),
        ("plugin", PLUGIN_CONFIG),
        ("mig", MIG_CONFIG),
        ("kubeconfig", KUBECONFIG),
    )


def _load(file: Path) -> Any:
    """As plain JSON: times are texts."""
    tree = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return json.loads(json.dumps(tree, default=lambda moment: f"{moment:%Y-%m-%dT%H:%M:%SZ}"))
