"""Usage history: what each LocalQueue has consumed, decaying with a half-life (Kueue's admission fair sharing).

`pending_queue` sorts a usage-based queue by it, `preemption_common` prefers victims of the heaviest user. Fixed point
throughout: powers of one half come from repeated integer square roots, so that they are equal on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import isqrt

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.queue import LocalQueue
from windlass.queueing.config import UsageHistoryConfig
from windlass.queueing.quota_node import AdmittedWorkload, Usage

_BITS = 64
_ONE = 1 << _BITS
_STEPS = 32
_IN_THOUSANDTHS = ("cpu", GPU_RESOURCE)
INFINITE_USAGE = Fraction(1 << 200)
"""Usage of a LocalQueue of weight 0: it comes after all others."""


def _fixed_point_roots() -> tuple[int, ...]:
    """2^(-1/2), 2^(-1/4), … in fixed point."""
    values = [_ONE >> 1]
    for _ in range(_STEPS):
        values.append(isqrt(values[-1] << _BITS))
    return tuple(values[1:])


_ROOTS = _fixed_point_roots()


def decay_factor(elapsed: int, half_life: int) -> Fraction:
    """The part of past usage that still counts: one half to the power of elapsed / half-life."""
    if elapsed <= 0:
        return Fraction(1)
    if half_life <= 0:
        return Fraction(0)
    whole, rest = divmod(elapsed, half_life)
    # Nothing is left of the fixed point.
    if whole > _BITS:
        return Fraction(0)
    value = _ONE >> whole
    for root in _ROOTS:
        rest *= 2
        if rest >= half_life:
            rest -= half_life
            value = value * root >> _BITS
    return Fraction(value, _ONE)


class LocalQueueUsage:
    """Current usage of every LocalQueue in weighted units; each admission adds to it."""

    def __init__(self, config: UsageHistoryConfig, queues: dict[str, LocalQueue], now: int) -> None:
        self._config = config
        self._queues = queues
        self._now = now
        self._consumed: dict[str, Fraction] = {
            key: self._weighted(queue.consumed.items()) * self._decay(queue) for key, queue in queues.items()
        }
        self._admission_factor = 1 - decay_factor(config.sampling_seconds, config.half_life_seconds)
        if not config.half_life_seconds:
            self._admission_factor = Fraction(0)

    def add_admitted(self, running: AdmittedWorkload) -> None:
        """Adds what a running workload has consumed since the history was written."""
        queue = self._queues.get(running.local_queue)
        if queue is not None and queue.consumed_at:
            self._consumed[queue.key] += self._weighted_usage(running.usage) * (1 - self._decay(queue))

    def charge(self, local_queue: str, usage: Usage) -> None:
        """Adds an admission of this decision, which counts as `sampling_seconds` of run time at once."""
        if local_queue in self._consumed:
            self._consumed[local_queue] += self._weighted_usage(usage) * self._admission_factor

    def usage(self, local_queue: str) -> Fraction:
        queue = self._queues.get(local_queue)
        if queue is None:
            return Fraction(0)
        if queue.fair_weight_milli <= 0:
            return INFINITE_USAGE
        return self._consumed[local_queue] * 1000 / queue.fair_weight_milli

    def _decay(self, queue: LocalQueue) -> Fraction:
        if not queue.consumed_at:
            return Fraction(1)
        return decay_factor(self._now - queue.consumed_at, self._config.half_life_seconds)

    def _weighted_usage(self, usage: Usage) -> Fraction:
        return self._weighted((resource, amount) for (_, resource), amount in usage.items())

    def _weighted(self, amounts: Iterable[tuple[str, int]]) -> Fraction:
        weights = self._config.resource_weights_milli
        total = 0
        for resource, amount in amounts:
            units = amount if resource in _IN_THOUSANDTHS else amount * 1000
            total += units * weights.get(resource, 1000)
        return Fraction(total)
