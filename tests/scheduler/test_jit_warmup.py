"""The warm-up runs through every kind of decision, so that the first real one compiles nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.engine import EngineConfig, decide
from windlass.model.plan import Plan
from windlass.scheduler import jit_warmup
from windlass.scheduler.jit_warmup import warm_up


def test_it_binds_single_pods_holds_one_and_starts_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []
    plans: list[Plan] = []

    def recorded(*arguments: Any) -> Plan:
        plans.append(decide(*arguments))
        return plans[-1]

    monkeypatch.setattr(jit_warmup, "jit", SimpleNamespace(compiled=lambda: compiled.append(True)))
    monkeypatch.setattr(jit_warmup, "decide", recorded)
    warm_up(EngineConfig())
    assert compiled == [True], "the kernels are loaded, and not interpreted as for a small cluster"
    bound = [{bind.pod for bind in plan.binds} for plan in plans]
    held = [{hold.workload for hold in plan.holds} for plan in plans]
    assert bound[0] == {"warm/p0"}
    assert held[1] == {"warm/p1"}
    assert "warm/p2" in bound[2]
    devices = {bind.pod: len(bind.devices) for bind in plans[2].binds}
    assert devices == {"warm/p0": 1, "warm/p2": 2}, "one device and several"
    assert {"warm/g1", "warm/g2"} <= bound[3]
    assert [admit.workload for admit in plans[3].admits] == ["warm/g"], "together"
    assert not any(plan.admits for plan in plans[:3])
