"""The outcome of a scenario: its events and checks in order.

`scenario.player` and `scenario.expectations` fill it; `scenario.report` prints it.
"""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True):
    at: int
    """Seconds since the start."""
    kind: str
    """submit, admit, bind, evict, hold, end, …"""
    subject: str
    text: str = ""


class Check(msgspec.Struct, frozen=True):
    """One expectation."""

    at: int
    expectation: str
    """In words: `train runs on h100-0`."""
    ok: bool
    actual: str = ""
    """What was observed instead, if the check failed."""


class Outcome(msgspec.Struct):
    name: str
    file: str
    title: str
    story: str = ""
    events: list[Event | Check] = msgspec.field(default_factory=list)

    @property
    def checks(self) -> list[Check]:
        return [event for event in self.events if isinstance(event, Check)]

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    @property
    def passed(self) -> bool:
        return not self.failures
