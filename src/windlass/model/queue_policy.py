"""What a ClusterQueue allows its tenants, from annotations of the ClusterQueue: how far their own annotations protect
them, and how much one job and one user may have.

`model.kueue.queues` reads it, `cluster.workloads` applies what it says of annotations, and `queueing.queue_limits` the
limits. Annotations, since Kueue's schema has no field for it; only administrators may write ClusterQueues.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.leaving import AskTerms
from windlass.model.names.windlass import (
    ALLOW_NOT_PREEMPTABLE_ANNOTATION,
    FLAVOR_ORDER_ANNOTATION,
    MAX_CHECKPOINT_GRACE_ANNOTATION,
    MAX_DURATION_ANNOTATION,
    MAX_JOB_GPUS_ANNOTATION,
    MAX_RESTART_COST_ANNOTATION,
    MAX_USER_GPUS_ANNOTATION,
    MAX_USER_RUNNING_ANNOTATION,
    MAX_USER_SUBMITTED_ANNOTATION,
)
from windlass.model.times import parse_duration

LISTED, EXPECTED_COST = "listed", "expected-cost"


class QueuePolicy(msgspec.Struct, frozen=True):
    """None: no limit."""

    allows_not_preemptable: bool = True
    max_restart_seconds: int | None = None
    max_checkpoint_grace_seconds: int | None = None
    max_duration_seconds: int | None = None
    max_job_gpus: int | None = None
    max_user_gpus: int | None = None
    max_user_running: int | None = None
    max_user_submitted: int | None = None
    orders_by_cost: bool = False
    """Flavors are tried by their expected cost instead of as the queue lists them."""

    @property
    def has_limits(self) -> bool:
        limits = (self.max_job_gpus, self.max_user_gpus, self.max_user_running, self.max_user_submitted)
        return any(limit is not None for limit in limits)

    def restart_seconds(self, declared: int | None) -> int | None:
        """As much of a declared restart cost as counts."""
        if declared is None or self.max_restart_seconds is None:
            return declared
        return min(declared, self.max_restart_seconds)

    def ask_terms(self, terms: AskTerms | None) -> AskTerms | None:
        """The terms on which its work is asked before it is preempted; None: it is not asked."""
        if terms is None or self.max_checkpoint_grace_seconds is None:
            return terms
        most = self.max_checkpoint_grace_seconds
        return AskTerms(terms.declared_seconds, most) if most else None

    def run_seconds(self, limit: int | None, *, is_enforced: bool) -> int | None:
        """As much of a run limit as counts; one that a controller enforces is not the tenant's word."""
        if limit is None or self.max_duration_seconds is None or is_enforced:
            return limit
        return min(limit, self.max_duration_seconds)


def read_queue_policy(annotations: Mapping[str, str]) -> tuple[QueuePolicy, str]:
    """The policy, and why it can't be read: a queue must not be open because of a typing error."""
    try:
        return QueuePolicy(
            allows_not_preemptable=_flag(annotations, ALLOW_NOT_PREEMPTABLE_ANNOTATION),
            max_restart_seconds=_seconds(annotations, MAX_RESTART_COST_ANNOTATION),
            max_checkpoint_grace_seconds=_seconds(annotations, MAX_CHECKPOINT_GRACE_ANNOTATION),
            max_duration_seconds=_seconds(annotations, MAX_DURATION_ANNOTATION),
            max_job_gpus=_number(annotations, MAX_JOB_GPUS_ANNOTATION),
            max_user_gpus=_number(annotations, MAX_USER_GPUS_ANNOTATION),
            max_user_running=_number(annotations, MAX_USER_RUNNING_ANNOTATION),
            max_user_submitted=_number(annotations, MAX_USER_SUBMITTED_ANNOTATION),
            orders_by_cost=_orders_by_cost(annotations),
        ), ""
    except InputError as error:
        return QueuePolicy(), f"{error.path}: {error.message}"


def _flag(annotations: Mapping[str, str], name: str) -> bool:
    text = annotations.get(name, "true")
    if text not in ("true", "false"):
        raise InputError(f"{text[:64]!r} is neither true nor false", path=f"metadata.annotations.{name}")
    return text == "true"


def _orders_by_cost(annotations: Mapping[str, str]) -> bool:
    text = annotations.get(FLAVOR_ORDER_ANNOTATION, LISTED)
    if text not in (LISTED, EXPECTED_COST):
        path = f"metadata.annotations.{FLAVOR_ORDER_ANNOTATION}"
        raise InputError(f"{text[:64]!r} is neither {LISTED} nor {EXPECTED_COST}", path=path)
    return text == EXPECTED_COST


def _number(annotations: Mapping[str, str], name: str) -> int | None:
    text = annotations.get(name)
    if text is not None and not (is_digits(text) and len(text) < 9):
        raise InputError(f"{text[:64]!r} is not a number", path=f"metadata.annotations.{name}")
    return None if text is None else int(text)


def _seconds(annotations: Mapping[str, str], name: str) -> int | None:
    text = annotations.get(name)
    try:
        return None if text is None else parse_duration(text)
    except InputError as error:
        raise InputError(error.message, path=f"metadata.annotations.{name}") from None
