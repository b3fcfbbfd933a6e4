"""Whether the template of a pod that doesn't exist yet would fit."""

from __future__ import annotations

import pytest

from reference.park import mig_node, node, pod
from windlass.diagnose.fit import FitChecker
from windlass.model.errors import InputError

PROFILE = ("1g.10gb", 1)


def test_instances_that_are_made_on_demand_need_not_be_advertised() -> None:
    fits = FitChecker([mig_node("m", 1), node("n")], 0).node_fits(pod("p", mig=PROFILE))
    assert [fit.node for fit in fits if not fit.reasons] == ["m"]


@pytest.mark.parametrize("mig", [None, PROFILE])
def test_what_no_node_has_is_named(mig: tuple[str, int] | None) -> None:
    checker = FitChecker([mig_node("m", 1), pod("other", asks={"example.com/nic": "1"})], 0)
    with pytest.raises(InputError, match=r"no node advertises example\.com/nic"):
        checker.node_fits(pod("p", mig=mig, asks={"example.com/nic": "1"}))


def test_a_pod_that_is_there_is_compared_with_every_node() -> None:
    waiting = pod("p", asks={"example.com/nic": "1"})
    (fit,) = FitChecker([node("n"), waiting], 0).node_fits(waiting)
    assert fit.shortfall == {"example.com/nic": 1}
