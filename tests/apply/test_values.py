"""What one module hands to another is a value: nobody can change it while another task holds it."""

from __future__ import annotations

import msgspec
import pytest

from windlass.apply.binder import BindOutcome, BindResult
from windlass.apply.conditions import PendingCondition
from windlass.apply.evictor import Victim
from windlass.apply.kueue import WorkloadQueue
from windlass.apply.volume_binding import PodVolumes
from windlass.cluster.delta import Deleted
from windlass.model.configuration import Settings
from windlass.model.decision import Bind
from windlass.scheduler.decision_record import Change, Header, Line, ReplayResult, UnreadableObject
from windlass.scheduler.options import SchedulerOptions

VALUES = [
    BindOutcome(Bind("team/p", "n1"), "uid", BindResult.BOUND),
    PendingCondition("team/p", "uid", "Unschedulable", "no room"),
    PodVolumes("n1", ("team/data",), {}),
    Victim("team/w", (("team/p", "uid"),), "Priority"),
    WorkloadQueue("main", 0, "v1beta2"),
    Change(deleted=Deleted("Pod", "team/p")),
    Header(Settings()),
    Line(0),
    ReplayResult(1, 0),
    SchedulerOptions(),
    UnreadableObject("no"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_cannot_be_changed(value: msgspec.Struct) -> None:
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, field, None)
