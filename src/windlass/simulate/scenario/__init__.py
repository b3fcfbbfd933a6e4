"""Scenarios: a small cluster, a timeline and expectations, in one file that reads like documentation.

    file ─► load ─► Scenario ─► play ─► Store ─► decide ─► plan ─┐
                       │          ▲                                │
                       │          └── cluster: executed  ◄────────┘
                       └─► expectations ─► Outcome ─► report

`windlass simulate SCENARIO` and the tests call `load_scenarios` and `play`. Nothing here decides: the production store
and `decide` do, on the virtual clock, and `executor` changes the simulated objects as kubelets and controllers would.
"""

from __future__ import annotations

from windlass.simulate.scenario.load import is_scenario, load_scenarios
from windlass.simulate.scenario.outcome import Check, Event, Outcome
from windlass.simulate.scenario.player import play
from windlass.simulate.scenario.spec import Scenario

__all__ = ["Check", "Event", "Outcome", "Scenario", "is_scenario", "load_scenarios", "play"]
