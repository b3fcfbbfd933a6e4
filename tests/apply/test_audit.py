"""What the audit log says of an eviction: who gains by it, out of which queue, and what is lost."""

from __future__ import annotations

import pytest

from windlass.apply.audit import PlanId, admission_record, eviction_record
from windlass.model.decision import Admit, Evict
from windlass.model.workload import Admission, Workload

PLAN = PlanId("replica", 7)


@pytest.mark.parametrize("gainer", ["team/a", "team/z"])
def test_an_eviction_names_who_gains_unless_that_is_the_workload_itself(gainer: str) -> None:
    evict = Evict("team/m", ("team/p",), gainer, "Priority", 40)
    running = Workload("team/m", "Job", (), admission=Admission("q"))
    record = eviction_record(evict, PLAN, ["team/p"], running)
    assert (record.gainer, record.queue, record.pods, record.lost_gpu_seconds) == (gainer, "q", ("team/p",), 40)
    own = eviction_record(Evict("team/m", (), "team/m", "DurationExceeded"), PLAN, [], None)
    assert (own.gainer, own.queue) == ("", "")
    waits = Workload("team/m", "Job", ())
    assert eviction_record(evict, PLAN, [], waits).queue == ""


def test_an_admission_that_waits_for_victims_names_them() -> None:
    record = admission_record(Admit("team/w", "Job", "q", (), ("team/m",)), PLAN)
    assert (record.reason, record.gainer, record.victims) == ("Preempted", "team/w", ("team/m",))
    assert admission_record(Admit("team/w", "Job", "q", ()), PLAN).reason == "QuotaReserved"
