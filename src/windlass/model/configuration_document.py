"""The configuration document that a running scheduler publishes, and its hash.

`scheduler.configuration_publisher` writes the document into the cluster; `dump.configuration` reads it back.
`settings_document` is the inverse of `model.configuration.scheduler_settings`. Fields with their default value are left
out, so that the document shows what was chosen.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from windlass.model.configuration import (
    AdmissionFairSharing,
    BackfillSettings,
    FairSharing,
    RequeuingStrategy,
    SchedulerConfiguration,
    Settings,
    WaitForPodsReady,
)
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.model.pod import RawQuantity
from windlass.model.times import format_duration
from windlass.model.usage_prices import UsageSettings, format_prices

HASH_LENGTH = 16


def settings_document(settings: Settings) -> dict[str, Any]:
    """The `SchedulerConfiguration` that has these settings."""
    return {"apiVersion": WINDLASS_API_VERSION, "kind": "SchedulerConfiguration", **_chosen(_wire(settings))}


def settings_hash(settings: Settings) -> str:
    """Equal for equal settings, however they were written."""
    text = msgspec.json.encode(settings_document(settings), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:HASH_LENGTH]


def _wire(settings: Settings) -> SchedulerConfiguration:
    return SchedulerConfiguration(
        scheduler_names=settings.scheduler_names,
        node_selector=settings.node_selector,
        placement=settings.placement,
        seed=settings.seed,
        classes=settings.classes,
        budgets_yield_to=settings.budgets_yield_to,
        min_run_time=format_duration(settings.min_run_seconds),
        restart_cost=format_duration(settings.restart_seconds),
        lost_work_cap=format_duration(settings.lost_seconds_cap),
        lost_work_caps=_durations(settings.lost_seconds_caps),
        ask_deadline=format_duration(settings.ask_seconds),
        max_ask_deadline=format_duration(settings.max_ask_seconds),
        gang_grace=format_duration(settings.gang_grace_seconds),
        defrag=settings.defrag,
        backfill=BackfillSettings(
            depth=settings.backfill_depth,
            reservation_lead=format_duration(settings.reservation_lead_seconds),
            run_times=_durations(settings.run_time_seconds),
            run_time_percentile=settings.run_time_percentile,
        ),
        topology_levels=settings.topology_levels,
        fair_sharing=_fair_sharing(settings),
        admission_fair_sharing=_usage(settings),
        wait_for_pods_ready=_readiness(settings),
        resources=settings.resources,
        usage=UsageSettings(currency=settings.currency, gpu_hour_prices=format_prices(settings.gpu_hour_micro_prices)),
    )


def _fair_sharing(settings: Settings) -> FairSharing | None:
    if not settings.fair_sharing:
        return None
    return FairSharing(preemption_strategies=settings.preemption_strategies)


def _usage(settings: Settings) -> AdmissionFairSharing | None:
    if settings.usage_half_life_seconds is None:
        return None
    weights: dict[str, RawQuantity] = {name: f"{milli}m" for name, milli in settings.resource_weights_milli.items()}
    half_life = format_duration(settings.usage_half_life_seconds)
    interval = format_duration(settings.usage_sampling_seconds)
    return AdmissionFairSharing(
        usage_half_life_time=half_life, usage_sampling_interval=interval, resource_weights=weights
    )


def _readiness(settings: Settings) -> WaitForPodsReady | None:
    if settings.ready_seconds is None:
        return None
    timestamp = "Creation" if settings.requeue_at_creation else "Eviction"
    return WaitForPodsReady(
        timeout=format_duration(settings.ready_seconds),
        block_admission=settings.block_admission,
        recovery_timeout="" if settings.recovery_seconds is None else format_duration(settings.recovery_seconds),
        requeuing_strategy=RequeuingStrategy(
            timestamp=timestamp,
            backoff_limit_count=settings.requeue_limit,
            backoff_base_seconds=settings.requeue_base_seconds,
            backoff_max_seconds=settings.requeue_max_seconds,
        ),
    )


def _durations(seconds: dict[str, int]) -> dict[str, str]:
    return {name: format_duration(number) for name, number in seconds.items()}


def _chosen(value: Any) -> Any:
    """As plain data without fields that equal their default. `omit_defaults` omits only values that are the default
    object itself, so that equal settings would have several documents."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _chosen(there)
            for field in msgspec.structs.fields(value)
            if (there := getattr(value, field.name)) != _default(field)
        }
    if isinstance(value, dict):
        return {key: _chosen(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_chosen(inner) for inner in value]
    return value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else _made(field)


def _made(field: msgspec.structs.FieldInfo) -> Any:
    factory = field.default_factory
    return msgspec.NODEFAULT if factory is msgspec.NODEFAULT else factory()
