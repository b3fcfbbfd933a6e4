"""`windlass top` as lines of text: `draw` makes of a state what fits in so many columns and rows.

Each line is pieces of text with a style; `terminal` knows what a style looks like there. A state is told by a letter, a
word or a bar, and by colour only besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from windlass.model.times import format_duration, format_timestamp
from windlass.telemetry.bottleneck import find_bottleneck, format_gpus
from windlass.telemetry.ledger import STATES, Ledger
from windlass.tui.top_rows import MARKS, WORDS, Row
from windlass.tui.top_state import FLEET, GPUS, JOBS, QUEUES, SORTS, VIEWS, TopState

Line = list[tuple[str, str]]
"""(text, style); styles are names of states, `bold`, `dim`, `chosen` or empty."""
BLOCKS = "▁▂▃▄▅▆▇█"
HEAD_LINES = 5
KEYS = "1 2 3 views  ↑↓ move  Enter open  Esc back  / filter  s S sort  r look  ? help  q quit"
HELP = (
    "1 2 3, Tab      fleet, queues, jobs",
    "↑ ↓ j k         move; PgUp, PgDn, Home, End too",
    "Enter           a node or queue: its jobs; a job: its GPUs",
    "Esc, Backspace  back, or filter off",
    "/               filter by a part of name, queue, user, team, model or cause",
    "s, S            sort by the next column; the other way round",
    "r               look now",
    "q               quit",
    "",
    *(f"{mark}  {WORDS[state]}" for state, mark in MARKS.items()),
)
Column = tuple[str, int]
"""Heading and width; 0: what is left. A negative width is aligned to the left."""
COLUMNS: dict[str, tuple[Column, ...]] = {
    FLEET: (("NODE", 0), ("GPUS", -16), ("MODEL", -14), ("HELD", 5), ("BUSY", 5), ("IDLE", 5), ("USE", -10)),
    QUEUES: (
        ("QUEUE", 0),
        ("HELD", 6),
        ("QUOTA", 6),
        ("BUSY", 6),
        ("IDLE", 6),
        ("WAIT", 6),
        ("OLDEST", 7),
        ("HELD", -10),
    ),
    JOBS: (("JOB", 0), ("QUEUE", -12), ("HELD", 5), ("BUSY", 5), ("IDLE", 5), ("WAIT", 5), ("USE, OR CAUSE", -16)),
    GPUS: (("GPU", 0), ("MODEL", -22), ("PART", 5), ("STATE", -14), ("POD", -24)),
}


def draw(state: TopState, width: int, height: int) -> list[Line]:
    """As many lines as the height, each of the width at most."""
    ledger = state.ledger
    if ledger is None:
        return _fit([[(state.note or "reading the cluster …", "")]], width, height)
    if state.help:
        return _fit([[(line, "")] for line in HELP], width, height)
    lines = [_title(state, ledger, width), *_summary(state, ledger, width)]
    place, rows = state.place, state.rows()
    shown = max(1, height - len(lines) - 2)
    place.chosen = max(0, min(place.chosen, len(rows) - 1))
    place.first = max(place.chosen - shown + 1, min(place.first, place.chosen), 0)
    widths = _widths(place.view, width)
    lines.append([(_cells(place.view, [heading for heading, _ in COLUMNS[place.view]], widths), "bold")])
    for number, row in enumerate(rows[place.first : place.first + shown], place.first):
        text = _cells(place.view, _texts(state, row), widths)
        lines.append([(text.ljust(width), "chosen")] if number == place.chosen else [(text, "")])
    if not rows:
        lines.append([("nothing matches" if place.filter else "nothing", "dim")])
    return [*_fit(lines, width, height - 1), _footer(state, len(rows), width)]


def sparkline(values: Sequence[float | None], width: int, most: float = 0.0) -> str:
    """The newest values, at the right; nothing where nothing was measured."""
    shown = list(values)[-width:]
    top = most or max((value for value in shown if value is not None), default=0.0) or 1.0
    blocks = (" " if value is None else BLOCKS[min(7, int(8 * max(0.0, value) / top))] for value in shown)
    return "".join(blocks).rjust(width)


def _title(state: TopState, ledger: Ledger, width: int) -> Line:
    nodes = len({share.node for share in ledger.shares})
    left = (
        f"windlass top  {format_gpus(ledger.total_milli)} GPUs on {nodes} nodes  {format_timestamp(ledger.at)[11:19]}"
    )
    tabs: Line = []
    for number, view in enumerate(VIEWS, 1):
        tabs.append((f" {number} {view} ", "chosen" if view == state.stack[0].view else ""))
    gap = width - len(left) - sum(len(text) for text, _ in tabs)
    return [(left, "bold"), (" " * max(1, gap), ""), *tabs]


def _summary(state: TopState, ledger: Ledger, width: int) -> list[Line]:
    by_state = {name: milli for name, milli in ledger.by_state().items() if milli}
    bar: Line = [(MARKS[name] * cells, name) for name, cells in _shares(by_state, width) if cells]
    legend: Line = []
    for name in STATES:
        if name in by_state:
            legend += [(MARKS[name], name), (f" {WORDS[name]} {format_gpus(by_state[name])}  ", "")]
    waiting = find_bottleneck(ledger)
    said = waiting[0].sentence if waiting else "Nothing waits for GPUs"
    graphs = ""
    if width >= 100:
        graphs = "  ".join(
            f"{name} {sparkline(state.line('', name), 10, 0.0 if name == 'waiting' else 1.0)}"
            for name in ("held", "busy", "waiting")
        )
    room = max(0, width - len(graphs) - 2) if graphs else width
    return [bar, legend, [(said[:room].ljust(room + 2 if graphs else 0), "bold"), (graphs, "")]]


def _shares(by_state: dict[str, int], width: int) -> list[tuple[str, int]]:
    """Columns of each state: they add up to the width, and what there is has one at least."""
    total = sum(by_state.values())
    cells = {name: max(1, milli * width // total) for name, milli in by_state.items()}
    largest = max(cells, key=lambda name: cells[name], default="")
    if largest:
        cells[largest] += width - sum(cells.values())
    return [(name, cells[name]) for name in STATES if name in cells]


def _widths(view: str, width: int) -> list[int]:
    fixed = sum(abs(size) for _, size in COLUMNS[view]) + len(COLUMNS[view]) - 1
    return [abs(size) or max(8, width - fixed) for _, size in COLUMNS[view]]


def _cells(view: str, texts: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for (_, size), text, width in zip_longest(COLUMNS[view], texts, widths):
        short = text if len(text) <= width else f"{text[: width - 1]}…"
        cells.append(short.rjust(width) if size > 0 else short.ljust(width))
    return " ".join(cells)


def _texts(state: TopState, row: Row) -> list[str]:
    view = state.place.view
    amounts = [format_gpus(row.held), format_gpus(row.busy), format_gpus(row.idle)]
    if view == FLEET:
        return [row.name, row.marks, _short(row.model), *amounts, sparkline(state.line(view, row.name), 10, 1.0)]
    if view == QUEUES:
        quota = "-" if row.quota is None else format_gpus(row.quota)
        line = sparkline(state.line(view, row.name), 10)
        return [row.name, amounts[0], quota, *amounts[1:], format_gpus(row.waiting), _since(state, row), line]
    if view == JOBS:
        last = row.cause or sparkline(state.line(view, row.name), 16, 1.0)
        return [row.name, row.queue, *amounts, format_gpus(row.waiting), last]
    (gpu_state, milli) = next(iter(row.states.items()))
    return [row.name, _short(row.model), format_gpus(milli), f"{row.marks} {WORDS[gpu_state]}", row.pod]


def _since(state: TopState, row: Row) -> str:
    at = state.ledger.at if state.ledger is not None else 0
    return format_duration(max(0, at - row.since) // 60 * 60) if row.since else ""


def _short(model: str) -> str:
    return model.removeprefix("NVIDIA-").removeprefix("Tesla-")


def _footer(state: TopState, rows: int, width: int) -> Line:
    place = state.place
    if state.typing:
        return [(f"filter: {place.filter}▏"[-width:], "bold")]
    where = " of ".join(filter(None, (place.job, place.queue, place.node)))
    order = f"{SORTS[place.view][place.sort][0]}{' ↑' if place.is_reversed else ''}"
    parts = [f"{rows} {place.view}{f' of {where}' if where else ''}, by {order}"]
    if place.filter:
        parts.append(f"filter “{place.filter}”")
    if state.note:
        parts.append(state.note)
    said = "; ".join(parts)
    return [(f"{said}   {KEYS}"[:width], "dim")]


def _fit(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    fitted = [_cut(line, width) for line in lines[: max(0, height)]]
    return fitted + [[]] * (height - len(fitted))


def _cut(line: Line, width: int) -> Line:
    cut: Line = []
    for text, style in line:
        left = width - sum(len(known) for known, _ in cut)
        if left > 0:
            cut.append((text[:left], style))
    return cut
