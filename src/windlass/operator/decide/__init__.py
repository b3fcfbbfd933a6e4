"""What should happen next: a pure function of the observed objects and the time.

`decide` is called by `operator.controller`, by `windlass plan change` on a dump, and by simulations on a virtual
clock. It has no clock, no chance, no files and no network, and it remembers nothing.
"""

from __future__ import annotations

from windlass.operator.decide.main import decide

__all__ = ["decide"]
