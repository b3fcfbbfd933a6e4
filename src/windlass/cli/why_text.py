"""A diagnosis as text for a terminal: the headline first, then its evidence, in 80 columns. Called by `cli.why`."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence

import click

from windlass.diagnose.causes import CAUSES
from windlass.diagnose.engine_view import outlook_lines
from windlass.diagnose.finding import BLOCKED, UNKNOWN, UNTRIED, WAITING, WELL, Diagnosis, NodeSummary, Patch

FEW = 5
"""Groups of nodes, and holders, shown without `-o wide`."""
MOST_NAMED = 3
"""Nodes named in a group of nodes with the same reasons."""
WIDTH = 80
STATES = {
    BLOCKED: ("BLOCKED", "red"),
    UNKNOWN: ("UNKNOWN", "magenta"),
    WAITING: ("WAITING", "yellow"),
    WELL: ("OK", "green"),
}
"""State → word and colour: what needs a person is told from what only needs time at a glance."""


def diagnosis_text(diagnosis: Diagnosis, wide: bool) -> str:
    width = max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if wide else WIDTH
    outlook = outlook_lines(diagnosis.outlook) if diagnosis.outlook is not None else []
    missing = [f"{missing.what} (run: {missing.command})" for missing in diagnosis.missing_evidence]
    linked = {link.code for link in diagnosis.chain}
    also = [f"{code}: {CAUSES[code].meaning}" for code in diagnosis.contributing if code not in linked]
    parts = [
        _headline(diagnosis, width),
        _listed("Leads to", _consequences(diagnosis), width),
        _listed("Also true", also, width),
        _listed("When", outlook, width),
        _listed("Moves", diagnosis.moves, width),
        _listed("Evidence", _additional_evidence(diagnosis), width),
        _nodes(diagnosis, wide, width),
        _holders(diagnosis, wide, width),
        _patches(diagnosis, width),
        _listed("Refused by the API server, tried without storing it", _refused(diagnosis), width),
        _listed("Ruled out", _ruled_out(diagnosis, wide), width),
        _listed("Against it", [diagnosis.doubt] if diagnosis.doubt else [], width),
        _listed("Missing", missing, width),
        _listed("Run next", _next(diagnosis), width),
    ]
    return "\n\n".join(part for part in parts if part)


def _headline(diagnosis: Diagnosis, width: int) -> str:
    mark, colour = STATES[diagnosis.state]
    parts = (mark, diagnosis.subject, diagnosis.code)
    gap = "  " if len("  ".join(parts)) <= width else "\n  "
    marked, code = click.style(mark, fg=colour, bold=True), click.style(diagnosis.code, bold=True)
    return "\n".join([f"{marked}  {diagnosis.subject}{gap}{code}", *_wrap(diagnosis.headline, width)])


def _consequences(diagnosis: Diagnosis) -> list[str]:
    """The chain from below the cause to the scheduler's own words, and who can change the cause."""
    lines = [f"{link.code}: {link.message}" for link in reversed(diagnosis.chain[:-1])]
    if lines and diagnosis.changed_by:
        lines.append(f"it can be changed by {diagnosis.changed_by}")
    return lines


def _ruled_out(diagnosis: Diagnosis, wide: bool) -> list[str]:
    shown = diagnosis.ruled_out if wide else diagnosis.ruled_out[:MOST_NAMED]
    return [f"{entry.code}: {entry.by}" for entry in shown]


def _next(diagnosis: Diagnosis) -> list[str]:
    """Commands that are not under Missing already."""
    named = {missing.command for missing in diagnosis.missing_evidence}
    return [command for command in diagnosis.next_commands if command not in named]


def _wrap(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    # Names of nodes and pods have hyphens, and are copied from here.
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)


def _additional_evidence(diagnosis: Diagnosis) -> list[str]:
    """Evidence that the headline does not contain already."""
    headline = diagnosis.headline.lower()
    # Most evidence begins with the object that says it.
    said = ((line, (line.partition(": ")[2] or line).lower().rstrip(".")) for line in diagnosis.evidence)
    return [line for line, text in said if text not in headline]


def _listed(title: str, lines: Sequence[str], width: int) -> str:
    wrapped = ["\n".join(_wrap(line, width, "  ", "    ")) for line in lines]
    return "\n".join([click.style(title, bold=True), *wrapped]) if lines else ""


def _nodes(diagnosis: Diagnosis, wide: bool, width: int) -> str:
    """Nodes that say the same stand together."""
    alike: dict[tuple[str, ...], list[NodeSummary]] = {}
    for account in diagnosis.nodes:
        alike.setdefault((*account.detail, _numbers(account)), []).append(account)
    groups = list(alike.values())
    if not groups:
        return ""
    shown = groups if wide else groups[:FEW]
    lines = [line for group in shown for line in _node(group, wide, width)]
    rest = [account for group in groups[len(shown) :] for account in group]
    if rest:
        counts = Counter(", ".join(account.codes) or "would take it" for account in rest)
        lines += [f"  and {number} more: {codes}" for codes, number in counts.most_common()]
    return "\n".join([click.style("Nearest nodes", bold=True), *lines])


def _node(group: list[NodeSummary], wide: bool, width: int) -> list[str]:
    named = [account.name for account in (group if wide else group[:MOST_NAMED])]
    more = f" and {len(group) - len(named)} more" if len(group) > len(named) else ""
    detail = "; ".join(group[0].detail) or "would take it"
    lines = _wrap(f"{', '.join(named)}{more}: {detail}", width, "  ", "      ")
    each = "each: " if len(group) > 1 and _numbers(group[0]) else ""
    return lines + _wrap(each + _numbers(group[0]), width, "      ", "      ")


def _numbers(account: NodeSummary) -> str:
    return ", ".join(
        f"{name} {account.free[name]} free of {account.allocatable.get(name, '0')}{_above(account, name)}"
        for name in account.free
    )


def _above(account: NodeSummary, name: str) -> str:
    """A note about unhealthy devices: in capacity, but not allocatable."""
    has, offers = account.capacity.get(name, ""), account.allocatable.get(name, "")
    return f" (capacity {has}: some are unhealthy)" if "/" in name and has != offers else ""


def _holders(diagnosis: Diagnosis, wide: bool, width: int) -> str:
    holders = diagnosis.holders if wide else diagnosis.holders[:FEW]
    lines = [
        f"{holder.gpus:>4}  {holder.namespace}/{holder.owner} on {', '.join(holder.nodes[:4])}"
        f"{' …' if len(holder.nodes) > 4 else ''}{f' since {holder.since}' if holder.since else ''}"
        for holder in holders
    ]
    hidden = len(diagnosis.holders) - len(holders)
    return _listed("GPUs in use by", [*lines, *([f"and {hidden} more"] if hidden else [])], width)


def _patches(diagnosis: Diagnosis, width: int) -> str:
    lines = [
        f"{patch.what}: {'it would run at once' if patch.runs_after else 'it would still wait'} ({_how(patch)})"
        for patch in diagnosis.patches
    ]
    if diagnosis.printed_patch is not None:
        lines[-1] += "; --patch prints the first"
    tried = (patch.dry_run for patch in diagnosis.patches)
    untried = {run.message: None for run in tried if run is not None and run.result == UNTRIED}
    lines += [f"not tried on the API server: {why}" for why in untried]
    return _listed("Smallest change", lines, width)


def _how(patch: Patch) -> str:
    where = f"{patch.target.kind.lower()}/{patch.target.name}"
    return where if patch.accepted else f"{where}, to be deleted and created again"


def _refused(diagnosis: Diagnosis) -> list[str]:
    """Each refusal once, with the first change that it is about."""
    by_words: dict[str, list[Patch]] = {}
    for patch in diagnosis.refused_patches:
        by_words.setdefault(patch.dry_run.message if patch.dry_run is not None else "", []).append(patch)
    return [
        f"{patches[0].what}{f' and {len(patches) - 1} more' if len(patches) > 1 else ''} ({_how(patches[0])}): {said}"
        for said, patches in by_words.items()
    ]
