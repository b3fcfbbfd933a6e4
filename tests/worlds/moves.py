"""Worlds in which work opts in to being asked, and nodes announce that they go (`make worlds MOVES=1`).

`play` calls it beside the happenings, with random numbers of its own: what else a seed draws stays as it is.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from windlass.model.names.windlass import (
    CHECKPOINT_GRACE_ANNOTATION,
    LEAVE_ANNOTATION,
    LEAVING_TAINT,
    ON_PREEMPTION_ANNOTATION,
    SIMULATED_ANSWER_ANNOTATION,
)
from windlass.model.notices import NODE_NOTICE_TAINTS
from windlass.model.times import format_timestamp
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Play

OPTED_IN_SHARE, STIRRED_SHARE = 0.5, 0.35
GRACE_SECONDS = 20
"""So short that reclaiming quota and filling gangs stay within the judges' patience."""
TAINTS = (
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    LEAVING_TAINT,
)


class Moves:
    def __init__(self, play: Play) -> None:
        self._play = play
        self._rng = Random(f"moves {play.spec.seed}")

    def opt_in(self, tree: Unstructured) -> None:
        """Sometimes: on the pod template of an owner, or on the pod. It answers in time, too late, or never."""
        template = tree.get("spec", {}).get("template") if tree["kind"] != "Pod" else tree
        if not isinstance(template, dict) or self._rng.random() >= OPTED_IN_SHARE:
            return
        notes = template.setdefault("metadata", {}).setdefault("annotations", {})
        notes |= {ON_PREEMPTION_ANNOTATION: "ask", CHECKPOINT_GRACE_ANNOTATION: f"{GRACE_SECONDS}s"}
        answers = self._rng.choice(("1s", "8s", "8s", "40s", ""))
        notes |= {SIMULATED_ANSWER_ANNOTATION: answers} if answers else {}
        self._play.drew(f"opted in: {f'answers after {answers}' if answers else 'never answers'}")

    async def stir(self) -> None:
        """Sometimes a node gives notice, takes one back, or a pod is told to leave."""
        if self._rng.random() >= STIRRED_SHARE:
            return
        if self._rng.random() < 0.2:
            await self._tell_a_pod()
            return
        node = self._rng.choice(await self._play.list("nodes"))
        taints = node["spec"].get("taints") or []
        others = [taint for taint in taints if taint["key"] not in NODE_NOTICE_TAINTS]
        if len(others) < len(taints):
            self._play.drew("notice: taken back")
        else:
            others.append(self._notice())
        await self._play.patch("nodes", node, {"spec": {"taints": others or None}})

    def _notice(self) -> Unstructured:
        key = self._rng.choice(TAINTS)
        self._play.drew(f"notice: {key}")
        until = str(int(self._play.now()) + self._rng.choice((5, 60))) if key == LEAVING_TAINT else "event"
        return {"key": key, "value": until, "effect": "NoSchedule"}

    async def _tell_a_pod(self) -> None:
        running = [pod for pod in await self._play.list("pods") if pod["status"].get("phase") == "Running"]
        if running:
            self._play.drew("notice: for a pod")
            text = f'{{"until": "{format_timestamp(int(self._play.now()) + 30)}", "cause": "somebody said so"}}'
            change = {"metadata": {"annotations": {LEAVE_ANNOTATION: text}}}
            await self._play.patch("pods", self._rng.choice(running), change)

    async def become_quiet(self) -> None:
        """Half of the notices stay to the end."""
        for node in await self._play.list("nodes"):
            taints = node["spec"].get("taints") or []
            others = [taint for taint in taints if taint["key"] not in NODE_NOTICE_TAINTS]
            if len(others) < len(taints) and self._rng.random() < 0.5:
                await self._play.patch("nodes", node, {"spec": {"taints": others or None}})
