"""The simulator's decision per pod, for `--placements` and `--explain`.

`simulate.trace_run` creates them; `simulate.runner` and `cli.simulate` write or print them. The placements file and
the trace together are all that an independent checker needs.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.decision import DeviceGrant
from windlass.model.verdict import Verdict


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Node and devices of a pod, from this second of the virtual clock."""

    pod: str
    node: str
    devices: tuple[DeviceGrant, ...]
    time: int

    @property
    def devices_text(self) -> str:
        """`0:1000;1:1000` — device index and milli-GPU, or `0:1g.10gb@4` for a MIG instance."""
        parts = [f"{grant.profile}@{grant.start}" if grant.profile else grant.milli for grant in self.devices]
        return ";".join(f"{grant.index}:{part}" for grant, part in zip(self.devices, parts, strict=True))


PlacementWriter = Callable[[Placement], None]


class Explanation(msgspec.Struct, frozen=True):
    """The outcome of one pod: a placement or a verdict; neither if no decision considered it."""

    pod: str
    time: int
    placement: Placement | None = None
    verdict: Verdict | None = None
