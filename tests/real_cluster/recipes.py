"""What the tests start, and from which pinned module each program is built.

Read by `binaries`, which builds. The versions themselves stand in the `go.mod` files below `binaries/`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODULES = Path(__file__).parent / "binaries"
KUBERNETES = "kubernetes"


@dataclass(frozen=True)
class Module:
    """A folder with a `go.mod` of ours that pins one release of one project."""

    folder: Path
    pins: str

    @cached_property
    def version(self) -> str:
        """The pinned release, as `go.mod` names it: v1.36.3."""
        found = re.search(rf"^(?:require|\s)\s*{re.escape(self.pins)} (v\S+)", self.manifest, re.MULTILINE)
        if found is None:
            raise LookupError(f"{self.folder / 'go.mod'} does not require {self.pins}")
        return found[1]

    @cached_property
    def manifest(self) -> str:
        return (self.folder / "go.mod").read_text()

    @cached_property
    def go(self) -> tuple[int, ...]:
        """The oldest Go that can build it."""
        found = re.search(r"^go ([\d.]+)", self.manifest, re.MULTILINE)
        assert found is not None
        return tuple(int(part) for part in found[1].split("."))

    @cached_property
    def digest(self) -> str:
        """Changes with anything that changes what is built."""
        sums = (self.folder / "go.sum").read_text()
        return hashlib.sha256((self.manifest + sums + repr(self.flags)).encode()).hexdigest()[:12]

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of `go build` that are the same for all programs of the module."""
        flags = ["-trimpath", "-buildvcs=false"]
        if self.pins.startswith("github.com/containerd/"):
            flags.append("-tags=no_btrfs")  # that snapshotter would need a C compiler and its headers
        return (*flags, "-ldflags=-s -w" + "".join(f" -X {name}={value}" for name, value in self.stamps))

    @property
    def stamps(self) -> tuple[tuple[str, str], ...]:
        """Variables that say the version: a Kubernetes program built from a module doesn't know its own."""
        if self.pins != "k8s.io/kubernetes":
            return ()
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        return (
            ("k8s.io/component-base/version.gitVersion", self.version),
            ("k8s.io/component-base/version.gitMajor", major),
            ("k8s.io/component-base/version.gitMinor", minor),
            ("k8s.io/client-go/pkg/version.gitVersion", self.version),
        )


@dataclass(frozen=True)
class Recipe:
    """One program: its package, and how long `go build` took on two cores with empty caches."""

    name: str
    module: str
    package: str
    seconds: int


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("etcd", "etcd", "go.etcd.io/etcd/server/v3", 90),
        Recipe("kube-apiserver", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver", 200),
        Recipe("kube-controller-manager", KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager", 40),
        Recipe("kubectl", KUBERNETES, "k8s.io/kubernetes/cmd/kubectl", 60),
        Recipe("kube-scheduler", KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler", 20),
        Recipe("kubelet", KUBERNETES, "k8s.io/kubernetes/cmd/kubelet", 25),
        Recipe("containerd", "containerd", "github.com/containerd/containerd/v2/cmd/containerd", 110),
        Recipe(
            "containerd-shim-runc-v2",
            "containerd",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            15,
        ),
        Recipe("helm", "helm", "helm.sh/helm/v3/cmd/helm", 120),
        Recipe("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", 340),
        Recipe("jobset", "jobset", "sigs.k8s.io/jobset", 60),
        Recipe("lws", "lws", "sigs.k8s.io/lws/cmd", 5),
        Recipe("trainer", "trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager", 10),
        Recipe("ctr", "containerd", "github.com/containerd/containerd/v2/cmd/ctr", 15),
    )
}

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
NODE = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")

_PINS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    KUBERNETES: "k8s.io/kubernetes",
    "containerd": "github.com/containerd/containerd/v2",
    "helm": "helm.sh/helm/v3",
    "kueue": "sigs.k8s.io/kueue",
    "jobset": "sigs.k8s.io/jobset",
    "lws": "sigs.k8s.io/lws",
    "trainer": "github.com/kubeflow/trainer/v2",
}
_SHARED = {"jobset": "controllers", "lws": "controllers", "trainer": "controllers"}
"""Modules of one folder: they share their dependencies, and so most of the time that building them takes."""


def module(name: str, kubernetes: str = "") -> Module:
    """The module of that name; `kubernetes` chooses an older minor ("1.34") of the Kubernetes one."""
    folder = f"{name}-{kubernetes}" if name == KUBERNETES and kubernetes else _SHARED.get(name, name)
    if not (MODULES / folder / "go.mod").is_file():
        known = ", ".join(sorted(path.parent.name for path in MODULES.glob("*/go.mod")))
        raise LookupError(f"no module {folder} is pinned in {MODULES}; there are {known}")
    return Module(MODULES / folder, _PINS[name])
