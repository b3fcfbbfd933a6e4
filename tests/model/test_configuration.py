"""`--config`: our kind strictly, Kueue's as it is; what requests count as under its rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.kueue_samples import changed, decoded
from tests.model.owner_samples import KUEUE_CONFIGURATION, SCHEDULER_CONFIGURATION

from windlass.model.codec import decode_object
from windlass.model.configuration import (
    BackfillSettings,
    ResourceRules,
    SchedulerConfiguration,
    Settings,
    Transformation,
    ignored_fields,
    kueue_settings,
    scheduler_settings,
    transform_requests,
)
from windlass.model.errors import InputError
from windlass.model.times import format_timestamp, parse_duration, parse_timestamp


def test_ours() -> None:
    [wire] = decoded(SCHEDULER_CONFIGURATION)
    made = scheduler_settings(wire)
    assert made.scheduler_names == ("windlass", "default-scheduler")
    assert (made.seed, made.min_run_seconds, made.restart_seconds) == (3, 600, 90)
    assert made.gang_grace_seconds == 5400
    assert (made.lost_seconds_cap, made.lost_seconds_caps) == (48 * 3600, {"research": 3600})
    assert made.run_time_seconds == {"lab/gpu": 7200}
    assert (made.defrag.proactive, made.defrag.max_moves) == (True, 4)
    assert made.classes[0].strategy == "spread"
    assert made.fair_sharing
    assert made.preemption_strategies == ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    assert made.usage_half_life_seconds is None


def test_kueues() -> None:
    [wire] = decoded(KUEUE_CONFIGURATION)
    made = kueue_settings(wire)
    assert made.fair_sharing
    assert made.preemption_strategies == ("LessThanInitialShare",)
    assert (made.usage_half_life_seconds, made.usage_sampling_seconds) == (168 * 3600, 300)
    assert made.resource_weights_milli == {"cpu": 500}
    assert (made.ready_seconds, made.block_admission, made.requeue_at_creation) == (600, True, True)
    assert ignored_fields(KUEUE_CONFIGURATION) == ("integrations",)
    assert not made.ignores_undeclared


def test_fair_sharing_is_off_unless_it_is_there() -> None:
    assert not Settings().fair_sharing
    [wire] = decoded(changed(KUEUE_CONFIGURATION, "fairSharing", {"enable": False}))
    assert not kueue_settings(wire).fair_sharing


@pytest.mark.parametrize(
    ("tree", "path", "value", "where"),
    [
        (SCHEDULER_CONFIGURATION, "minRunTme", "1m", "minRunTme"),
        (SCHEDULER_CONFIGURATION, "minRunTime", "soon", "minRunTime"),
        (SCHEDULER_CONFIGURATION, "lostWorkCaps/research", "much", "lostWorkCaps.research"),
        (SCHEDULER_CONFIGURATION, "backfill/runTimes/gpu", "x", "backfill.runTimes.gpu"),
        (SCHEDULER_CONFIGURATION, "classes/0/strategy", "stack", "classes[0].strategy"),
        (SCHEDULER_CONFIGURATION, "defrag/maxMoves", -1, "defrag.maxMoves"),
        (SCHEDULER_CONFIGURATION, "placement", "best", "placement"),
        (SCHEDULER_CONFIGURATION, "schedulerNames", [], "schedulerNames"),
        (
            SCHEDULER_CONFIGURATION,
            "fairSharing/preemptionStrategies",
            ["x"],
            "fairSharing.preemptionStrategies",
        ),
        (
            KUEUE_CONFIGURATION,
            "resources/transformations/0/strategy",
            "Drop",
            "resources.transformations[0].strategy",
        ),
        (KUEUE_CONFIGURATION, "resources/quotaCheckStrategy", "x", "resources.quotaCheckStrategy"),
        (
            KUEUE_CONFIGURATION,
            "admissionFairSharing/resourceWeights/cpu",
            "-1",
            "admissionFairSharing.resourceWeights",
        ),
        (KUEUE_CONFIGURATION, "waitForPodsReady/timeout", "x", "waitForPodsReady.timeout"),
    ],
)
def test_the_wrong_field_is_named(tree: dict[str, Any], path: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(changed(tree, path, value))
    assert caught.value.path.startswith(where)


def test_transformed_requests() -> None:
    rules = ResourceRules(
        exclude_resource_prefixes=("example.com/",),
        transformations=(
            Transformation(input="cpu", strategy="Retain", outputs={"credits": "2"}),
            Transformation(input="nvidia.com/gpu", strategy="Replace", multiply_by="memory", outputs={"gpu-bytes": 1}),
        ),
    )
    asked = {"cpu": 1500, "nvidia.com/gpu": 500, "memory": 8, "example.com/x": 3}
    assert transform_requests(asked, rules) == {"cpu": 1500, "credits": 3, "memory": 8, "gpu-bytes": 4}


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "x"]), st.integers(0, 10**6)))
def test_without_rules_requests_count_as_they_are(asked: dict[str, int]) -> None:
    assert transform_requests(asked, ResourceRules()) == asked


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 1), ("0s", 0)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1d", "-1s", "1h 30m", "9" * 70, "99999999999h", "1..5h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError):
        parse_duration(text)


@given(st.integers(1, 2**33))
def test_times_go_out_and_in(seconds: int) -> None:
    assert parse_timestamp(format_timestamp(seconds)) == seconds


def test_backfill_is_read_with_its_lead_in_seconds() -> None:
    wire = SchedulerConfiguration(backfill=BackfillSettings(depth=5, reservation_lead="90m"))
    settings = scheduler_settings(wire)
    assert (settings.backfill_depth, settings.reservation_lead_seconds) == (5, 5400)
    assert (Settings().backfill_depth, Settings().reservation_lead_seconds) == (32, 86_400)


@pytest.mark.parametrize(
    ("backfill", "path"),
    [
        (BackfillSettings(depth=-1), "backfill.depth"),
        (BackfillSettings(reservation_lead="soon"), "backfill.reservationLead"),
    ],
)
def test_a_backfill_that_means_nothing_is_refused(backfill: BackfillSettings, path: str) -> None:
    with pytest.raises(InputError) as caught:
        scheduler_settings(SchedulerConfiguration(backfill=backfill))
    assert caught.value.path == path


def test_budgets_yield_to_what_is_named_and_to_nothing_else() -> None:
    assert scheduler_settings(SchedulerConfiguration()).budgets_yield_to == ("reclaim", "fairShare")
    made = scheduler_settings(SchedulerConfiguration(budgets_yield_to=("reclaim", "priority")))
    assert made.budgets_yield_to == ("reclaim", "priority")
    with pytest.raises(InputError) as error:
        scheduler_settings(SchedulerConfiguration(budgets_yield_to=("reclaim", "anything")))
    assert error.value.path == "budgetsYieldTo[1]"
