"""Settings out as a document and in again: the same settings, whatever they are, and one hash for equal settings."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.model.kueue_samples import decoded
from tests.model.owner_samples import KUEUE_CONFIGURATION, SCHEDULER_CONFIGURATION

from windlass.model.codec import decode_object
from windlass.model.configuration import (
    BUDGETS_YIELD_TO,
    PLACEMENT_POLICIES,
    PLACEMENT_STRATEGIES,
    STRATEGY_LISTS,
    Defragmentation,
    ResourceRules,
    SchedulerConfiguration,
    Settings,
    Transformation,
    WorkloadClass,
    kueue_settings,
    scheduler_settings,
)
from windlass.model.configuration_document import settings_document, settings_hash
from windlass.model.meta import LabelSelector
from windlass.placement.policies import SCORERS

NAMES = st.text("abc-", min_size=1, max_size=6)
SECONDS = st.integers(0, 10**9)


def transformations(names: list[str]) -> tuple[Transformation, ...]:
    return tuple(
        Transformation(input=name, strategy="Replace" if name < "b" else "Retain", outputs={"credits": "2"})
        for name in dict.fromkeys(names)
    )


RULES = st.builds(
    ResourceRules,
    exclude_resource_prefixes=st.lists(NAMES).map(tuple),
    transformations=st.lists(NAMES).map(transformations),
    quota_check_strategy=st.sampled_from(["BlockUndeclared", "IgnoreUndeclared"]),
)
CLASSES = st.builds(
    WorkloadClass,
    name=NAMES,
    selector=st.builds(LabelSelector, match_labels=st.dictionaries(NAMES, NAMES)),
    strategy=st.sampled_from(PLACEMENT_STRATEGIES),
)


@st.composite
def drawn_settings(draw: st.DrawFn) -> Settings:
    """Anything that a file can ask for. What a part that is switched off would say is at its default."""
    more: dict[str, Any] = {}
    if draw(st.booleans()):
        more |= {"fair_sharing": True, "preemption_strategies": draw(st.sampled_from(STRATEGY_LISTS))}
    if draw(st.booleans()):
        weights = draw(st.dictionaries(NAMES, st.integers(0, 10**6)))
        more |= {"usage_half_life_seconds": draw(SECONDS), "usage_sampling_seconds": draw(SECONDS)}
        more |= {"resource_weights_milli": weights}
    if draw(st.booleans()):
        more |= {"ready_seconds": draw(SECONDS), "block_admission": draw(st.booleans())}
        more |= {"requeue_at_creation": draw(st.booleans())}
    return Settings(
        scheduler_names=tuple(draw(st.lists(NAMES, min_size=1, max_size=3))),
        node_selector=draw(st.dictionaries(NAMES, NAMES, max_size=2)),
        placement=draw(st.sampled_from(PLACEMENT_POLICIES)),
        seed=draw(st.integers(0, 10**6)),
        classes=tuple(draw(st.lists(CLASSES, max_size=2))),
        budgets_yield_to=tuple(draw(st.lists(st.sampled_from(BUDGETS_YIELD_TO), unique=True))),
        min_run_seconds=draw(SECONDS),
        restart_seconds=draw(SECONDS),
        lost_seconds_cap=draw(SECONDS),
        lost_seconds_caps=draw(st.dictionaries(NAMES, SECONDS, max_size=2)),
        run_time_seconds=draw(st.dictionaries(NAMES.map(lambda name: f"lab/{name}"), SECONDS, max_size=2)),
        run_time_percentile=draw(st.integers(0, 100)),
        ask_seconds=draw(SECONDS),
        max_ask_seconds=draw(SECONDS),
        gang_grace_seconds=draw(SECONDS),
        defrag=Defragmentation(proactive=draw(st.booleans()), max_moves=draw(st.integers(0, 99))),
        backfill_depth=draw(st.integers(0, 10**6)),
        reservation_lead_seconds=draw(SECONDS),
        topology_levels=tuple(draw(st.lists(NAMES, max_size=3))),
        resources=draw(RULES),
        gpu_hour_micro_prices=draw(st.dictionaries(NAMES, st.integers(0, 10**12), max_size=2)),
        **more,
    )


def read_back(settings: Settings) -> Settings:
    wire = decode_object(msgspec.json.encode(settings_document(settings)))
    assert isinstance(wire, SchedulerConfiguration)
    return scheduler_settings(wire)


@given(drawn_settings())
def test_out_and_in_again(settings: Settings) -> None:
    back = read_back(settings)
    assert back == settings
    assert settings_hash(back) == settings_hash(settings)


@given(drawn_settings(), drawn_settings())
def test_different_settings_have_different_hashes(one: Settings, other: Settings) -> None:
    assert (settings_hash(one) == settings_hash(other)) == (one == other)


def test_no_setting_is_forgotten() -> None:
    """A new field of `Settings` has to be written out, too, and this test has to know it."""
    settings = Settings(
        scheduler_names=("lab",),
        node_selector={"pool": "gpu"},
        placement="fgd",
        seed=7,
        classes=(WorkloadClass(name="serving", strategy="spread"),),
        budgets_yield_to=("reclaim",),
        min_run_seconds=1,
        restart_seconds=2,
        lost_seconds_cap=3,
        lost_seconds_caps={"research": 4},
        run_time_seconds={"lab/gpu": 5},
        run_time_percentile=6,
        ask_seconds=17,
        max_ask_seconds=18,
        gang_grace_seconds=7,
        defrag=Defragmentation(proactive=True),
        backfill_depth=8,
        reservation_lead_seconds=9,
        topology_levels=("rack",),
        fair_sharing=True,
        preemption_strategies=STRATEGY_LISTS[1],
        usage_half_life_seconds=10,
        usage_sampling_seconds=11,
        resource_weights_milli={"cpu": 12},
        resources=ResourceRules(quota_check_strategy="IgnoreUndeclared"),
        ready_seconds=13,
        recovery_seconds=14,
        requeue_limit=15,
        requeue_base_seconds=16,
        requeue_max_seconds=17,
        block_admission=True,
        requeue_at_creation=True,
        currency="EUR",
        gpu_hour_micro_prices={"NVIDIA-H200": 3_990_000, "NVIDIA-L4": 1},
    )
    same = [
        field.name
        for field in msgspec.structs.fields(Settings)
        if getattr(settings, field.name) == getattr(Settings(), field.name)
    ]
    assert not same
    assert read_back(settings) == settings


def test_what_files_say_survives() -> None:
    [ours], [kueues] = decoded(SCHEDULER_CONFIGURATION), decoded(KUEUE_CONFIGURATION)
    for settings in (scheduler_settings(ours), kueue_settings(kueues)):
        assert read_back(settings) == settings


def test_defaults_are_left_out() -> None:
    empty = {"apiVersion": "windlass.dev/v1", "kind": "SchedulerConfiguration"}
    assert settings_document(Settings()) == empty
    assert settings_document(Settings(min_run_seconds=90)) == {**empty, "minRunTime": "1m30s"}


def test_every_policy_can_be_named() -> None:
    assert set(PLACEMENT_POLICIES) == set(SCORERS)
