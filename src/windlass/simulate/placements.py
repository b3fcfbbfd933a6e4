"""What the simulator decided, pod by pod, for `--placements` and `--explain`.

`simulate.trace_run` makes them; the command line writes or prints them. The file is all that an independent checker
needs beside the trace itself.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.decision import DeviceGrant
from windlass.model.verdict import Verdict


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod went to a node, on these devices, at this second of the virtual clock."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...]
    time: int

    @property
    def devices_text(self) -> str:
        """`0:1000;1:1000` — device index and milli-GPU, or `0:1g.10gb@4` for a MIG instance."""
        return ";".join(
            f"{grant.index}:{grant.profile}@{grant.start}"
            if grant.profile
            else f"{grant.index}:{grant.milli}"
            for grant in self.devices
        )


PlacementWriter = Callable[[Placement], None]


class Explanation(msgspec.Struct, frozen=True):
    """What became of one pod, and why."""

    pod: str
    time: int
    placement: Placement | None = None
    verdict: Verdict | None = None
