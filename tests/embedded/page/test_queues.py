"""What the page shows of a queue's quota."""

from __future__ import annotations

import pytest

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.quota import format_quota
from windlass.web.queues import queue_view


@pytest.mark.parametrize(("milli", "used"), [(500, 0.5), (2_500, 2.5), (3_000, 3)])
def test_parts_of_gpus_count_as_the_scheduler_writes_them(milli: int, used: float) -> None:
    """The scheduler writes the usage of half a GPU as `500m`."""
    flavor = {"name": "f", "resources": [{"name": GPU_RESOURCE, "nominalQuota": "8"}]}
    usage = {"name": "f", "resources": [{"name": GPU_RESOURCE, "total": format_quota(GPU_RESOURCE, milli)}]}
    queue = {
        "metadata": {"name": "q"},
        "spec": {"resourceGroups": [{"coveredResources": [GPU_RESOURCE], "flavors": [flavor]}]},
        "status": {"flavorsUsage": [usage]},
    }
    assert queue_view(queue)["quota"] == [{"resource": GPU_RESOURCE, "nominal": 8, "used": used, "borrowed": 0}]
