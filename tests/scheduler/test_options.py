"""The options' defaults, which the chart, the command line and the documentation rely on."""

from __future__ import annotations

import msgspec

from windlass.kube.request_budget import RequestRate
from windlass.model.configuration import Settings
from windlass.scheduler.audit_log import AuditLogOptions
from windlass.scheduler.options import SchedulerOptions


def test_a_scheduler_without_options_leads_writes_and_compiles() -> None:
    assert msgspec.structs.asdict(SchedulerOptions()) == {
        "settings": Settings(),
        "shadow": False,
        "record": None,
        "leader_elect": True,
        "lease_namespace": "windlass-system",
        "lease_name": "windlass-scheduler",
        "lease_seconds": 15.0,
        "identity": "",
        "api_rate": RequestRate(),
        "listen": None,
        "take_over": frozenset(),
        "audit": AuditLogOptions(),
        "history": None,
        "prometheus": "",
        "batch_seconds": 0.001,
        "warm_up": True,
    }
