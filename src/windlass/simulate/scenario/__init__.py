"""Scenarios: a small cluster, a time line and what is expected, in one file that reads like documentation.

    file ─► load ─► Scenario ─► play ─► Store ─► decide ─► plan ─┐
                       │          ▲                                │
                       │          └──── world: carried out ◄──────┘
                       └─► expectations ─► Outcome ─► report

`windlass simulate SCENARIO` and the tests come in through `load_scenarios` and `play`. Nothing here decides: the
production store and `decide` do, on the virtual clock, and `carry` does to the simulated objects what the cluster's
controllers would do.
"""

from __future__ import annotations

from windlass.simulate.scenario.load import is_scenario, load_scenarios
from windlass.simulate.scenario.outcome import Check, Event, Outcome
from windlass.simulate.scenario.player import play
from windlass.simulate.scenario.spec import Scenario

__all__ = ["Check", "Event", "Outcome", "Scenario", "is_scenario", "load_scenarios", "play"]
