"""`windlass simulate --list`: which traces there are, as a table or a document.

Fed with the catalogue of `simulate.traces`; prints nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.cli.output import windlass_document
from windlass.simulate.traces import TraceInfo

if TYPE_CHECKING:
    from rich.table import Table


def traces_document(infos: Sequence[TraceInfo]) -> dict[str, Any]:
    """The `TraceList`: one item a trace."""
    return windlass_document("TraceList", items=[msgspec.to_builtins(info) for info in infos])


def traces_table(infos: Sequence[TraceInfo], wide: bool = False) -> Table:
    """One row a trace; those that can be run at once come first."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    titles = ["trace", "available", "description", "source", "licence"]
    for title in titles if wide else titles[:-1]:
        table.add_column(title, no_wrap=title == "trace")
    for info in sorted(infos, key=lambda info: not info.at_hand):
        row = [info.name, "yes" if info.at_hand else "no", info.description, info.source, info.licence]
        table.add_row(*(row if wide else row[:-1]))
    return table
