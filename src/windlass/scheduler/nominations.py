"""The nodes that pods are nominated for while victims terminate there, known before the API server shows them.

`scheduler.cache` puts them over the pods that the informers show, as kube-scheduler's nominator does. Victims may be
gone within milliseconds, and what they free belongs to the pod for which they were evicted: a decision that did not
know of the nomination would give it to others, often to the victims themselves, and evict them again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.pod import Pod


class Nominations:
    def __init__(self) -> None:
        self._node_by_pod: dict[str, str] = {}
        """Empty: the nomination was withdrawn, and the API server may still show it."""

    def replace(self, nominated: Mapping[str, str], pods: Mapping[str, Pod]) -> list[str]:
        """The nominations of a plan, in place of those before; returns the pods for which something has changed."""
        before = {key: self._effective(pod) for key, pod in pods.items() if key in self._node_by_pod}
        withdrawn = {
            key: ""
            for key in self._node_by_pod.keys() - nominated.keys()
            if key in pods and pods[key].status.nominated_node_name
        }
        self._node_by_pod = {**withdrawn, **nominated}
        concerned = sorted(before.keys() | (nominated.keys() & pods.keys()))
        return [
            key
            for key in concerned
            if self._effective(pods[key]) != before.get(key, pods[key].status.nominated_node_name)
        ]

    def overlay(self, pod: Pod) -> Pod:
        """The pod as decisions have to see it."""
        if pod.is_bound or pod.is_terminal:
            self._node_by_pod.pop(pod.key, None)
            return pod
        node = self._effective(pod)
        if not node and not pod.status.nominated_node_name:
            self._node_by_pod.pop(pod.key, None)
        if node == pod.status.nominated_node_name:
            return pod
        return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))

    def forget(self, key: str) -> None:
        """The pod was deleted."""
        self._node_by_pod.pop(key, None)

    def _effective(self, pod: Pod) -> str:
        return self._node_by_pod.get(pod.key, pod.status.nominated_node_name)
