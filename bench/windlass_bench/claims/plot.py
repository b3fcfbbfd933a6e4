"""Pictures of the claims that have something to draw: one file each, PNG or SVG.

Fed by the command line with claims; the panels are made by the claims themselves.
"""

from __future__ import annotations

from pathlib import Path

from windlass_bench.claims.claim import Claim, Panel

COLOURS = ("#4c6a92", "#c8553d", "#588157", "#8a6fa8", "#b08a3e")


def draw_claim(claim: Claim, path: Path) -> None:
    """Writes the picture of a claim that has panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2 * len(claim.panels)), layout="constrained")
    for index, panel in enumerate(claim.panels):
        _draw(figure.add_subplot(len(claim.panels), 1, index + 1), panel)
    figure.savefig(path, dpi=150)


def _draw(axes: object, panel: Panel) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        if panel.steps:
            axes.step(line.x, line.y, where="post", label=line.label, color=colour, linewidth=1.6)
        else:
            axes.plot(line.x, line.y, marker="o", label=line.label, color=colour, linewidth=1.6)
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.legend(frameon=False, fontsize=9)
