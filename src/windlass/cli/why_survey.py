"""`windlass why -A`, printed: what needs a person first, on one screen, and what only needs time below.

Called by `cli.why`.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from windlass.cli.output import windlass_document
from windlass.cli.why_text import STATES, WIDTH
from windlass.diagnose.finding import BLOCKED, UNKNOWN, WAITING
from windlass.diagnose.survey import Survey
from windlass.diagnose.survey_entries import SurveyEntry
from windlass.model.times import parse_timestamp

LINES_OF_TEXT = 2
"""Of a headline, where not everything is asked for."""
MOST_WAITING = 5
SMALLEST_SCREEN = 24
NEEDS = {BLOCKED: ("needs you", "need you"), UNKNOWN: ("needs a look", "need a look")}


def survey_document(found: Survey) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(found)
    return windlass_document("Survey", **fields)


def survey_text(found: Survey, now: int, wide: bool) -> str:
    """One screen; with `wide`, everything."""
    size = shutil.get_terminal_size((WIDTH, SMALLEST_SCREEN))
    width = max(WIDTH, size.columns) if wide else WIDTH
    waiting = [entry for entry in found.entries if entry.state == WAITING]
    faults = [entry for entry in found.entries if entry.state != WAITING]
    tail = _waiting(waiting, now, width, wide)
    # The summary, blank lines, the lines about what is left out, and the prompt below.
    room = max(SMALLEST_SCREEN, size.lines) - len(tail) - 6
    shown, blocks = 0, list[str]()
    for block in (_fault(entry, now, width, wide) for entry in faults):
        room -= len(block)
        if room < 0 and not wide and shown:
            break
        blocks, shown = [*blocks, *block], shown + 1
    parts = [[_summary(found)], blocks + _left_out(faults[shown:]), tail, _not_asked(found), _next(faults)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _summary(found: Survey) -> str:
    counts = {state: [entry for entry in found.entries if entry.state == state] for state in STATES}
    said = [
        f"{len(entries)} cause{'s'[: len(entries) != 1]} {NEEDS[state][len(entries) != 1]}"
        for state, entries in counts.items()
        if entries and state in NEEDS
    ]
    waiting = sum(len(entry.subjects) for entry in counts.get(WAITING, ()))
    if waiting:
        said.append(f"{waiting} object{'s only need' if waiting != 1 else ' only needs'} time")
    where = f"namespace {found.namespace}" if found.namespace else "the cluster"
    if not said:
        said = ["nothing that is known needs you" if found.not_asked or not found.has_pods else "nothing needs you"]
    return click.style(f"In {where}: {', '.join(said)}.", bold=True)


def _fault(entry: SurveyEntry, now: int, width: int, wide: bool) -> list[str]:
    text = textwrap.wrap(entry.headline, width - 2, break_on_hyphens=False)
    if len(text) > LINES_OF_TEXT and not wide:
        rest = " ".join(text[LINES_OF_TEXT - 1 :])
        text = [*text[: LINES_OF_TEXT - 1], textwrap.shorten(rest, width - 2, placeholder=" …")]
    return [*_title(entry, now, width, wide), *(f"  {line}" for line in text)]


def _title(entry: SurveyEntry, now: int, width: int, wide: bool) -> list[str]:
    """State, code and what it keeps from running; on two lines where one is too short."""
    mark, colour = STATES[entry.state]
    more = len(entry.subjects) - 1
    names = ", ".join(entry.subjects) if wide else entry.subjects[0] + (f" and {more} more" if more else "")
    created = parse_timestamp(entry.since) if entry.since else 0
    numbers = [
        f"{entry.gpus} GPU{'s'[: entry.gpus != 1]}" if entry.gpus else "",
        f"for {_age(now - created)}" if 0 < created < now else "",
        "not certain" if entry.confidence == "low" and entry.state == BLOCKED else "",
    ]
    said = ", ".join(filter(None, numbers))
    what = f"{names}: {said}" if said else names
    code = entry.code if entry.state != UNKNOWN else ""
    first = f"{click.style(f'{mark:<8}', fg=colour, bold=True)} {click.style(code, bold=True)}"
    if len(f"{mark:<8} {code}  {what}") <= width:
        return [f"{first}  {what}" if code else f"{first}{what}"]
    return [first, *(f"  {line}" for line in textwrap.wrap(what, width - 2, break_on_hyphens=False))]


def _age(seconds: int) -> str:
    """Days, hours or minutes: the largest unit of which there are two."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _waiting(entries: Sequence[SurveyEntry], now: int, width: int, wide: bool) -> list[str]:
    shown = entries if wide else entries[:MOST_WAITING]
    lines = [line for entry in shown for line in _title(entry, now, width, wide)]
    more = sum(len(entry.subjects) for entry in entries[len(shown) :])
    return [*lines, *([f"and {more} more that only need time"] if more else [])]


def _left_out(entries: Sequence[SurveyEntry]) -> list[str]:
    if not entries:
        return []
    codes = ", ".join(dict.fromkeys(entry.code for entry in entries))
    return textwrap.wrap(f"and {len(entries)} more, -o wide shows them: {codes}", WIDTH, max_lines=2, placeholder=" …")


def _not_asked(found: Survey) -> list[str]:
    if not found.has_pods:
        return ["There are no pods in the evidence: whether one waits or fails is not known."]
    if not found.not_asked:
        return []
    return [
        f"{found.not_asked} of {found.asked} objects in trouble were not looked into; -n NAMESPACE asks about fewer."
    ]


def _next(faults: Sequence[SurveyEntry]) -> list[str]:
    return [f"More about the first: windlass why {faults[0].question}"] if faults else []
