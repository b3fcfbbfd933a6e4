"""A small cluster as plain objects."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Cluster:
    nodes: list
    placed: list = field(default_factory=list)
    """(pod, index of its node)."""
    volumes: dict = field(default_factory=dict)
    claims: dict = field(default_factory=dict)
    storage_classes: dict = field(default_factory=dict)
    namespaces: dict = field(default_factory=dict)

    def pods_on(self, index):
        return [pod for pod, where in self.placed if where == index]

    def labels_of_namespace(self, name):
        labels = {"kubernetes.io/metadata.name": name}
        if name in self.namespaces:
            labels = {**self.namespaces[name].metadata.labels, **labels}
        return labels
