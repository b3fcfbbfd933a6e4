"""The panels of a plot; each draws one measure of several policies onto given axes.

`simulate.plot` chooses and arranges them. Series are labelled directly where possible, instead of by a legend, and
every panel says which direction is better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from windlass.simulate.compare import value_of
from windlass.simulate.report import format_duration
from windlass.simulate.result import RunResult

# Okabe and Ito's colours stay apart for colour-blind readers and in print; black and brown extend them.
PALETTE = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
LINE_STYLES = ("-", "--", ":")
"""Beyond the palette's end the line style changes, so that no two policies look alike."""
OWN_POLICY, OWN_COLOUR = "windlass", "#D55E00"
"""Our own policy has the same colour in every plot."""
GREY = "#6B6B6B"
FAINT = "#DDDDDD"
CAUSE_SHADES = ("#404040", "#7A7A7A", "#A8A8A8", "#CFCFCF", "#E8E8E8")
"""Causes are grey, since colours stand for policies."""

CAUSE_LABELS = {
    "lack_gpu": "too little GPU left",
    "lack_cpu": "too little CPU beside it",
    "lack_both": "both too little",
    "cpu_only": "CPU pods can't use it",
    "wrong_model": "other model asked for",
}

TIMES = (1, 10, 60, 600, 3600, 21600, 86400, 604800)
FINER_TIMES = (2, 5, 20, 30, 120, 300, 1200, 1800, 7200, 10800, 43200, 172800, 345600)
"""Ticks of a time axis in seconds; the finer ones are added if fewer than three would be shown."""

Runs = Mapping[str, Sequence[RunResult]]
"""Runs by policy, in the order of display."""
Floats = NDArray[np.float64]


def policy_styles(policies: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and line style of each policy."""
    styles = {}
    others = 0
    for policy in policies:
        if policy == OWN_POLICY:
            styles[policy] = (OWN_COLOUR, "-")
        else:
            style = LINE_STYLES[others // len(PALETTE) % len(LINE_STYLES)]
            styles[policy] = (PALETTE[others % len(PALETTE)], style)
            others += 1
    return styles


def draw_curves(axes: Axes, runs: Runs, field: str, title: str) -> None:
    """One line per policy over the course of the run: the mean over its seeds, with a band from minimum to maximum."""
    ends: list[tuple[float, str, str]] = []
    last = 0.0
    styles = policy_styles(runs)
    for policy, policy_runs in runs.items():
        at, values = _on_one_grid(policy_runs, field)
        if not len(at):
            continue
        (colour, style), mean = styles[policy], values.mean(axis=0)
        # Our line is thicker and below the others, so that both are visible where they coincide.
        width, zorder = (3.2, 2) if policy == OWN_POLICY else (1.6, 3)
        axes.plot(at, mean, color=colour, linestyle=style, linewidth=width, zorder=zorder, label=policy)
        if len(values) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        ends.append((float(mean[-1]), policy, colour))
        last = max(last, float(at[-1]))
    axes.set_title(title)
    axes.margins(x=0)
    low, high = axes.get_ylim()
    if low < 0:  # no measure is negative
        axes.set_ylim(0, max(high, 0.1))
    if time_unit(runs) == "hours":
        axes.set_xlabel("hours since the start, until a tenth of the peak is left")
        axes.set_xlim(right=_end_of_work(runs))
        # All lines end at zero, where their names would overlap, so there is a legend beside the axes.
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    else:
        axes.set_xlabel("GPUs requested so far, percent of all GPUs")
        _label_ends(axes, ends, last)


def draw_ideal(axes: Axes, runs: Runs) -> None:
    """The line of a fleet without fragmentation, which allocates all requests until it is full."""
    last = max(_on_one_grid(policy_runs, "allocated_pct")[0][-1] for policy_runs in runs.values())
    full = min(100.0, last)
    axes.plot([0, full, last], [0, full, full], color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    _write_beside(axes, "asked for", (last, full), (-4, 3), ha="right", va="bottom", color=GREY)


def zoom_to_difference(axes: Axes, runs: Runs) -> None:
    """Starts the allocation panel where the policies begin to differ."""
    start, low, last = 100.0, 100.0, 100.0
    for policy_runs in runs.values():
        at, values = _on_one_grid(policy_runs, "allocated_pct")
        behind = np.minimum(at, 100.0) - values.min(axis=0)
        parted = at[behind > 0.75]
        start = min(start, float(parted[0]) if len(parted) else 100.0)
        last = max(last, float(at[-1]))
    for policy_runs in runs.values():
        at, values = _on_one_grid(policy_runs, "allocated_pct")
        low = min(low, float(values[:, at >= start].min(initial=100.0)))
    left = max(0.0, start - 5)
    axes.set_xlim(left, last)
    bottom = min(left, low - 1)
    axes.set_ylim(bottom, 100 + (100 - bottom) * 0.12)  # space for the label above the line
    axes.set_yticks([tick for tick in axes.get_yticks() if bottom <= tick <= 100])


def draw_final(axes: Axes, runs: Runs, measure: str, title: str) -> None:
    """The final value of every run as a dot, and each policy's mean as a bar with its number."""
    styles = policy_styles(runs)
    for row, (policy, policy_runs) in enumerate(runs.items()):
        values = [value_of(run, measure) for run in policy_runs]
        _dots_with_mean(axes, row, values, styles[policy][0], f"{np.mean(values):.2f} %")
    _name_rows(axes, list(runs))
    axes.set_title(title)
    several = any(len(policy_runs) > 1 for policy_runs in runs.values())
    axes.set_xlabel("percent, not from 0" + ("; a dot is a seed, the bar their mean" if several else ""))
    _widen_right(axes, 0.22)
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= min(high, 100.0)])


def draw_differences(axes: Axes, rows: Sequence[tuple[str, Sequence[float]]], baseline: str) -> None:
    """One row per trace and policy: the difference to the baseline on every seed, and its mean."""
    for row, (_, differences) in enumerate(rows):
        mean = float(np.mean(differences))
        colour = PALETTE[0] if mean >= 0 else OWN_COLOUR
        _dots_with_mean(axes, row, differences, colour, f"{mean:+.2f}")
    axes.axvline(0, color=GREY, linewidth=1.2, zorder=1)
    _name_rows(axes, [name for name, _ in rows])
    axes.set_xlabel(f"points more than {baseline} on the same seed; a dot is a seed, the bar their mean")
    _widen_right(axes, 0.1)


def draw_causes(axes: Axes, runs: Runs) -> None:
    """The expected fragment at the end in percent of all GPUs, stacked by cause."""
    shares = {policy: _cause_shares(policy_runs) for policy, policy_runs in runs.items()}
    causes = [cause for cause in CAUSE_LABELS if any(row.get(cause, 0) > 0.005 for row in shares.values())]
    start = np.zeros(len(shares))
    for number, cause in enumerate(causes):
        widths = np.array([row.get(cause, 0.0) for row in shares.values()])
        style: Any = {"color": CAUSE_SHADES[number], "edgecolor": "white", "label": CAUSE_LABELS[cause]}
        axes.barh(np.arange(len(shares)), widths, left=start, height=0.6, **style)
        start += widths
    for row, total in enumerate(start):
        _write_beside(axes, f"{total:.1f}", (total, row), (5, 0), va="center", fontsize=11)
    _name_rows(axes, list(shares))
    axes.set_title("What makes free GPUs useless (less is better)")
    axes.set_xlabel("expected fragment at the end, percent of all GPUs")
    axes.set_xlim(0, max(float(start.max(initial=0.0)) * 1.12, 0.1))
    if causes:
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=3, frameon=False, fontsize=10.5)


def draw_waiting(axes: Axes, runs: Runs) -> None:
    """Mean, median and tails of the waiting time, on a logarithmic scale that starts at one second."""
    marks = (("p50", "o", "median"), ("mean", "D", "mean"), ("p90", "s", "90 %"), ("p99", "^", "99 %"))
    styles = policy_styles(runs)
    for row, (policy, policy_runs) in enumerate(runs.items()):
        waits = [run.waiting for run in policy_runs if run.waiting is not None]
        if not waits:
            continue
        means = [float(np.mean([getattr(wait, mark) for wait in waits])) for mark, _, _ in marks]
        points = [max(1.0, mean) for mean in means]
        axes.plot([min(points), max(points)], [row, row], color=FAINT, linewidth=5, zorder=1)
        for (_, shape, words), point in zip(marks, points, strict=True):
            label = words if row == 0 else None
            axes.plot(point, row, shape, color=styles[policy][0], markersize=8, label=label, zorder=3)
        words = f"mean {format_duration(means[1])}"
        _write_beside(axes, words, (points[1], row), (0, 10), ha="center", fontsize=11)
    axes.set_xscale("log")
    _name_rows(axes, list(runs))
    axes.set_title("Waiting until the start (less is better)")
    _time_ticks(axes)
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.13), ncols=4, frameon=False, fontsize=10.5)
    for handle in legend.legend_handles:
        handle.set_color(GREY)  # type: ignore[union-attr]  # the stub allows None, matplotlib doesn't give it


def has_causes(runs: Runs) -> bool:
    return any(run.fragmentation_causes for policy_runs in runs.values() for run in policy_runs)


def has_waiting(runs: Runs) -> bool:
    return any(run.waiting is not None for policy_runs in runs.values() for run in policy_runs)


def has_curves(runs: Runs) -> bool:
    return all(run.curve is not None and len(run.curve.at) > 1 for rows in runs.values() for run in rows)


def _on_one_grid(runs: Sequence[RunResult], field: str) -> tuple[Floats, Floats]:
    """The curves of several seeds, interpolated at common points: (points, one row per seed)."""
    curves = [run.curve for run in runs if run.curve is not None and run.curve.at]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    end = min(curve.at[-1] for curve in curves)
    longest = max(curves, key=lambda curve: len(curve.at))
    at = np.unique([point for point in longest.at if point < end] + [end])
    return at, np.array([np.interp(at, curve.at, getattr(curve, field)) for curve in curves])


def _end_of_work(runs: Runs) -> float:
    """The last time at which a tenth of the peak was still allocated. With long jobs, the fleet takes longer to run
    empty than the trace lasts."""
    ends = [1e-9]
    for policy_runs in runs.values():
        at, values = _on_one_grid(policy_runs, "allocated_pct")
        busy = np.flatnonzero(values.mean(axis=0) >= values.mean(axis=0).max(initial=0.0) / 10)
        if len(busy):
            ends.append(float(at[min(busy[-1] + 1, len(at) - 1)]))
    return max(ends)


def time_unit(runs: Runs) -> str:
    return next((run.curve.unit for rows in runs.values() for run in rows if run.curve), "")


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], at: float) -> None:
    """Writes each line's name at its end, far enough apart to be readable."""
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    heights = spread_apart([value for value, _, _ in ends], (high - low) * 0.078)
    style: Any = {"va": "center", "fontsize": 11, "fontweight": "bold", "annotation_clip": False}
    for (value, name, colour), height in zip(ends, heights, strict=True):
        place = (at + (right - left) * 0.015, height)
        axes.annotate(f"{name} {value:.1f}", (at, value), place, color=colour, **style)


def spread_apart(values: Sequence[float], distance: float) -> list[float]:
    """Heights near the values, in the same order, at least `distance` from each other."""
    order = np.argsort(values, kind="stable")
    heights = [float(values[index]) for index in order]
    for _ in range(100):  # each round moves close neighbours apart by equal amounts; a few rounds suffice
        close = [i for i in range(len(heights) - 1) if heights[i + 1] - heights[i] < distance * 0.999]
        if not close:
            break
        for i in close:
            push = (distance - (heights[i + 1] - heights[i])) / 2
            heights[i] -= push
            heights[i + 1] += push
    placed = [0.0] * len(heights)
    for height, index in zip(heights, order, strict=True):
        placed[index] = height
    return placed


def _dots_with_mean(axes: Axes, row: int, values: Sequence[float], colour: str, label: str) -> None:
    mean = float(np.mean(values))
    if len(values) > 1:
        axes.plot(values, [row] * len(values), "o", color=colour, alpha=0.45, markersize=7, zorder=2)
    bar: Any = {"color": colour, "linewidth": 4, "solid_capstyle": "butt", "zorder": 3}
    axes.plot([mean, mean], [row - 0.3, row + 0.3], **bar)
    style = {"va": "center", "fontsize": 12, "fontweight": "bold", "color": colour}
    _write_beside(axes, label, (max(values), row), (10, 0), **style)


def _write_beside(axes: Axes, text: str, at: tuple[float, float], offset: tuple[int, int], **style: Any) -> None:
    """Writes the text at the point, moved by the offset in points of print."""
    axes.annotate(text, at, offset, textcoords="offset points", **style)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _widen_right(axes: Axes, share: float) -> None:
    """Adds space for the numbers to the right of the dots."""
    low, high = axes.get_xlim()
    width = max(high - low, 0.5)
    axes.set_xlim(low - width * 0.03, high + width * share)


def _cause_shares(runs: Sequence[RunResult]) -> dict[str, float]:
    """Percent of all GPUs by cause, mean over the seeds."""
    shares: dict[str, float] = {}
    for run in runs:
        for cause, milli in run.fragmentation_causes.items():
            percent = 100 * milli / max(run.gpu_milli_total, 1)
            shares[cause] = shares.get(cause, 0.0) + percent / len(runs)
    return shares


def _time_ticks(axes: Axes) -> None:
    """Ticks at common times instead of powers of ten; more of them if the range is narrow."""
    low, high = axes.get_xlim()
    shown = [seconds for seconds in TIMES if low <= seconds <= high]
    if len(shown) < 3:
        shown = [seconds for seconds in sorted(TIMES + FINER_TIMES) if low <= seconds <= high]
    axes.set_xticks(shown, [_time_words(seconds) for seconds in shown])
    axes.minorticks_off()


def _time_words(seconds: int) -> str:
    if seconds == 1:
        return "≤ 1 s"  # includes jobs that never waited
    units = ((604800, "w"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, name = next(unit for unit in units if seconds % unit[0] == 0)
    return f"{seconds // size} {name}"
