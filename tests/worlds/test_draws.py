"""What is drawn: nothing that worlds are made of is rare. Drawn on a cluster in which nothing but this happens."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from tests.worlds.draw_work import GROUP_FORMS_DRAWN
from tests.worlds.draw_world import draw_world
from tests.worlds.happenings import HAPPENINGS, draw_happening
from tests.worlds.judge import Judge
from tests.worlds.judges import gangs
from tests.worlds.play import TWO_REPLICAS_SHARE, Play, Report

from windlass.model.group_membership import ANNOUNCED_FORMS, GROUP_ANNOTATIONS, GROUP_FORMS, GROUP_LABELS, KAI
from windlass.model.unstructured import Unstructured

WORLDS = 300


class DrawnCluster:
    """Keeps what is created; pods are Pending for ever, and nothing is ever changed."""

    group_forms = tuple(GROUP_FORMS_DRAWN)

    def __init__(self, nodes: list[Unstructured], replicas: int) -> None:
        self.cannot = frozenset({"cut_off_leader"} if replicas == 1 else ())
        self._objects: dict[str, list[Unstructured]] = defaultdict(list, nodes=nodes)
        self.counts: dict[str, int] = {}

    async def start(self, judge: Judge) -> None: ...

    async def create(self, resource: str, tree: Unstructured) -> None:
        self._objects[resource].append({"status": {"phase": "Pending"}, **tree})

    async def list(self, resource: str) -> list[Unstructured]:
        return self._objects[resource]

    async def patch(self, resource: str, tree: Unstructured, merge: Unstructured) -> None: ...
    async def delete(self, resource: str, tree: Unstructured) -> None: ...
    def fail(self, target: str) -> None: ...
    def hang_kubelet(self, node: str) -> None: ...
    def heal(self) -> None: ...
    async def restart_scheduler(self, pause: float) -> None: ...
    async def cut_off_leader(self) -> None: ...
    def set_network(self, latency: float, failures: float, watch_lag: float, decision_seconds: float) -> None: ...
    async def stop(self) -> None: ...


async def draw(seed: int) -> Report:
    report, spec = Report(seed), draw_world(seed)
    report.drawn.update(spec.drawn)
    replicas = 2 if seed % 100 < 100 * TWO_REPLICAS_SHARE else 1
    play = Play(spec, DrawnCluster([node.tree for node in spec.nodes], replicas), report, Judge(report))
    for tree in spec.objects:
        await play.create(tree)
    for _ in range(spec.theme.steps):
        happening = draw_happening(play)
        report.happened[happening.__name__] += 1
        await happening(play)
    return report


def test_every_form_of_a_group_is_drawn_and_judged() -> None:
    """No world has PodGroups of KAI."""
    forms = {form.source: form for form in GROUP_FORMS}
    assert forms.keys() - GROUP_FORMS_DRAWN.keys() == {KAI}
    assert (set(gangs.MARKS), set(gangs.NOTES)) == (GROUP_LABELS, GROUP_ANNOTATIONS)
    assert set(gangs.SIZES) == {form.size_annotation for form in ANNOUNCED_FORMS.values()}


def test_nothing_is_rare() -> None:
    reports = [asyncio.run(draw(seed)) for seed in range(WORLDS)]
    happened: Counter[str] = sum((report.happened for report in reports), Counter())
    drawn: Counter[str] = sum((report.drawn for report in reports), Counter())
    total, sorts = happened.total(), Counter[str]()
    for name, times in drawn.items():
        sorts[name.partition(":")[0]] += times
    rare = [each.__name__ for _, each in HAPPENINGS if happened[each.__name__] < total / 100]
    rare += [name for name, times in drawn.items() if ":" in name and times < sorts[name.partition(":")[0]] / 100]
    rare += [name for name in drawn if sum(1 for report in reports if report.drawn[name]) < WORLDS / 100]
    assert not rare
