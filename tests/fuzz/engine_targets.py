"""Clusters in which some objects are strange, for the engine. `targets` lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

import msgspec
from tests.fuzz import samples
from tests.fuzz.guarded_kernels import guarded_kernels
from tests.fuzz.mutate import QUANTITIES, Mutator, places
from tests.fuzz.target import Finding, Target, few, no_logged_errors

from windlass import jit
from windlass.apply.messages import condition_message
from windlass.cli.plan_document import plan_document
from windlass.cluster.delta import Deleted, Put
from windlass.dump.configuration import choose_configuration
from windlass.isolation import IsolatingEngine
from windlass.model.codec import Unreadable, decode_kind, object_id
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.placement.policies import POLICIES
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.options import SchedulerOptions

NOW = 1_800_000_000
SETTINGS = Settings(scheduler_names=("windlass", "default-scheduler"))
"""Most samples name no scheduler, so that they would be nobody's to decide on."""
AMOUNTS = ("cpu", "memory", "pods", "replicas", "parallelism", "minMember", "priority")


class Worlds(Target):
    """A cluster in which some objects are strange: the live scheduler's cache and engine decide on it, twice."""

    name, share = "worlds", 25

    def __init__(self) -> None:
        self._mutator = Mutator(
            [*samples.DECIDED, *(obj for seed in range(20) for obj in samples.cluster(Random(seed)))]
        )

    def draw(self, rng: Random) -> Any:
        objects = samples.cluster(rng)
        added = rng.sample(samples.DECIDED, rng.randint(0, 3))
        strange = set(rng.sample(range(len(objects)), rng.randint(1, min(4, len(objects)))))
        objects = [self._maybe(obj, rng, number in strange) for number, obj in enumerate(objects)]
        return {"objects": [*objects, *(self._maybe(obj, rng, True) for obj in added)], "gone": rng.randrange(20)}

    def _maybe(self, obj: Unstructured, rng: Random, is_strange: bool) -> Unstructured:
        return self._mutator.tree(obj, rng, few(rng)) if is_strange else obj

    def play(self, drawn: Any) -> None:
        with no_logged_errors():
            for plan in decided(drawn, SETTINGS):
                _document(plan)


class Kernels(Worlds):
    """The same, with more amounts that no machine has: compiled kernels and plain ones, which look at every index,
    come to the same plans."""

    name, share = "kernels", 5

    def draw(self, rng: Random) -> Any:
        drawn = super().draw(rng)
        amounts = [place for place in places(drawn["objects"]) if str(place[1]) in AMOUNTS or "/" in str(place[1])]
        for container, key in rng.sample(amounts, min(len(amounts), rng.randint(0, 6))):
            container[key] = rng.choice(QUANTITIES)
        return {**drawn, "policy": rng.choice(POLICIES)}

    def play(self, drawn: Any) -> None:
        settings = msgspec.structs.replace(SETTINGS, placement=drawn["policy"])
        with no_logged_errors():
            by_compiled, by_guarded = (self._documents(drawn, settings, kernels) for kernels in kernel_sets())
        if by_compiled != by_guarded:
            raise Finding(f"compiled kernels decide {by_compiled}, plain ones {by_guarded}")

    def _documents(self, drawn: Any, settings: Settings, kernels: jit.Kernels) -> list[bytes]:
        with mock.patch.object(jit, "kernels", return_value=kernels):
            return [_document(plan) for plan in decided(drawn, settings)]


def kernel_sets() -> tuple[jit.Kernels, jit.Kernels]:
    return jit.compiled(), guarded_kernels()


def decided(drawn: Any, settings: Settings) -> Iterator[Plan]:
    """The plan for the drawn objects, and the one when one of them has gone."""
    cache, engine = SchedulerCache(SchedulerOptions(settings=settings)), IsolatingEngine(engine_config(settings))
    read = [_decoded(obj) for obj in drawn["objects"] if _is_stored(obj)]
    cache.push([Put(obj) for obj in read])
    yield _decide(cache, engine, NOW)
    gone = read[drawn["gone"] % len(read)] if read else None
    if gone is not None and not isinstance(gone, Unreadable):
        cache.push([_deletion(gone)])
    yield _decide(cache, engine, NOW + 700)


def _decide(cache: SchedulerCache, engine: IsolatingEngine, now: int) -> Plan:
    """With every hold explained."""
    cache.flush(now)
    snapshot = cache.store.snapshot(now)
    for text in (*snapshot.notes, *snapshot.unreadable.values()):
        if "a bug in Windlass" in text:
            raise Finding(text)
    plan, advisor, faults = engine.decide_without_explanations(snapshot, now)
    for fault in faults:
        raise fault.error
    holds = [advisor.explain_hold(hold) if advisor is not None else hold for hold in plan.holds]
    for hold in holds:
        condition_message(hold.verdict)
    return msgspec.structs.replace(plan, holds=tuple(holds))


def _document(plan: Plan) -> bytes:
    return msgspec.json.encode(plan_document(plan, NOW, [], choose_configuration((), ()).used))


def _is_stored(obj: Any) -> bool:
    """Whether an API server could have it, of a kind that the scheduler watches."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict) or obj.get("kind") == "Service":
        return False
    metadata = obj["metadata"]
    names = (metadata.get("name"), metadata.get("namespace", "x"), metadata.get("uid", "x"))
    return all(isinstance(name, str) and name for name in names)


def _decoded(obj: Unstructured) -> Any:
    return decode_kind(json.dumps(obj).encode(), str(obj.get("kind")), str(obj.get("apiVersion")))


def _deletion(obj: Any) -> Deleted:
    group, kind, key = object_id(obj)
    return Deleted(kind, key, group)
