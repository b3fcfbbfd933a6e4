"""`windlass bench simulate` as a whole: which parts there are, and what their tables look like to people and scripts.

`cli.simulate` calls it and prints what it returns.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass import __version__
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass_bench.ablation import ablation
from windlass_bench.bounds import distance_to_bounds
from windlass_bench.churn import churn
from windlass_bench.equality import equality
from windlass_bench.quality import better_than_fgd, other_traces
from windlass_bench.runs import Outcomes
from windlass_bench.scale import Scale
from windlass_bench.section import BenchPart, Section
from windlass_bench.speed import speed

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

KIND = "BenchReport"
PARTS = ("equality", "quality", "bounds", "ablation", "others", "churn", "speed")


def parts_of(names: Sequence[str], scale: Scale, traces_dir: Path | None) -> list[BenchPart]:
    """The named parts; those that need the public traces are left out where there are none."""
    known = {
        "ablation": lambda: ablation(scale, traces_dir),
        "others": lambda: other_traces(scale, traces_dir),
        "churn": lambda: churn(scale, traces_dir),
        "speed": lambda: speed(scale, traces_dir),
    }
    if traces_dir is not None:
        known |= {
            "equality": lambda: equality(scale),
            "quality": lambda: better_than_fgd(scale),
            "bounds": lambda: distance_to_bounds(scale),
        }
    return [known[name]() for name in PARTS if name in names and name in known]


def sections_of(parts: Sequence[BenchPart], outcomes: Outcomes) -> list[Section]:
    """The tables that have at least a row, in the order of the parts."""
    return [section for part in parts for section in part.sections(outcomes) if section.rows]


def report_document(sections: Sequence[Section], interrupted: bool | None = None) -> dict[str, Any]:
    """`interrupted` is None for benchmarks that are finished or have nothing to show."""
    progress = {} if interrupted is None else {"version": __version__, "interrupted": interrupted}
    return {
        "apiVersion": WINDLASS_API_VERSION,
        "kind": KIND,
        **progress,
        "machine": machine(),
        "sections": section_documents(sections),
    }


def section_documents(sections: Sequence[Section]) -> list[dict[str, Any]]:
    return [
        {"name": section.name, "title": section.title, "note": section.note, "rows": section.rows}
        for section in sections
    ]


def report_markdown(sections: Sequence[Section]) -> str:
    """The tables as they stand in docs/benchmarks.md."""
    parts = []
    for section in sections:
        titles = [column.title for column in section.columns]
        lines = [titles, ["---"] * len(titles), *map(section.cells, section.rows)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"### {section.title}\n\n{table}\n" + (f"\n{section.note}\n" if section.note else ""))
    return "\n".join(parts)


def report_tables(sections: Sequence[Section]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for section in sections:
        parts += ["", Text(section.title, "bold"), _table(section)]
        if section.note:
            parts.append(Text(section.note))
    return Group(*parts)


def machine() -> dict[str, Any]:
    """Where the seconds were measured."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _table(section: Section) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for position, column in enumerate(section.columns):
        table.add_column(column.title, justify="left" if position == 0 else "right")
    for row in section.rows:
        table.add_row(*map(Text, section.cells(row)))  # as text: `times:100:10` is no emoji
    return table
