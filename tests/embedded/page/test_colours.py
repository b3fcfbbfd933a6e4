"""The page's colours can be read: text by WCAG's 4.5 to 1, shapes that mean something by 3 to 1, light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STYLE = Path(__file__).resolve().parents[3] / "web" / "src" / "style" / "colours.css"
TEXT = {
    "ink": ("ground", "card", "card-2", "accent-soft", "wait-soft", "ill-soft"),
    "ink-2": ("ground", "card", "card-2", "off-soft", "accent-soft", "ill-soft"),
    "ink-3": ("ground", "card", "card-2", "accent-soft", "ill-soft"),
    "accent": ("card", "card-2", "accent-soft"),
    "ill": ("card", "ill-soft"),
    "wait": ("card", "wait-soft"),
    "good": ("card", "good-soft"),
    "shared": ("shared-soft",),
    "card": ("ink", "accent"),
}
SHAPES = {
    "edge": ("card", "card-2", "free"),
    "busy": ("card-2", "busy-soft", "off-soft"),
    "shared": ("card-2", "shared-soft"),
    "mig": ("card-2", "mig-soft"),
    "ill": ("card-2", "ill-soft"),
    "off": ("card-2", "off-soft", "ill-soft"),
    "wait": ("card", "wait-soft"),
    "accent": ("card", "card-2", "ground"),
}


def palette(scheme: int) -> dict[str, str]:
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", STYLE.read_text())
    return {name: colours[scheme] for name, *colours in pairs}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("scheme", "name"), [(0, "light"), (1, "dark")])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (SHAPES, 3.0)])
def test_contrast(scheme: int, name: str, pairs: dict[str, tuple[str, ...]], least: float) -> None:
    colours = palette(scheme)
    faint = [
        f"{name}: {front} on {back} {found:.2f}"
        for front, backs in pairs.items()
        for back in backs
        if (found := contrast(colours[front], colours[back])) < least
    ]
    assert not faint
