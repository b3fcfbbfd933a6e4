"""`windlass why --patch`: the patch as YAML, and above it the command that applies it. Called by `cli.why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.cli.output import print_note
from windlass.cli.printable import printable

if TYPE_CHECKING:
    from windlass.diagnose.finding import Diagnosis, Patch


def print_patch(diagnosis: Diagnosis) -> None:
    best = diagnosis.printed_patch
    is_refused = any(patch.runs_after for patch in diagnosis.refused_patches)
    if not diagnosis.patches or (best is None and is_refused):
        print_note(_without_patch(diagnosis))
        return
    import yaml

    if best is None:
        nearest = diagnosis.patches[0].what
        print_note(f"No patch of {diagnosis.subject} would let it run now; with the nearest ({nearest}) it would wait.")
        return
    where = f"-n {best.target.namespace} " if best.target.namespace else ""
    for line in _trial_lines(best):
        print_note(f"# {line}")
    if not best.accepted:
        fields = f"{', '.join(best.refused)} can't be changed" if best.refused else "to delete it and create it again"
        print_note(f"# {fields}: kubectl replace --force {where}-f FILE")
        click.echo(yaml.dump(best.manifest, Dumper=yaml.CSafeDumper, sort_keys=False), nl=False)
        return
    flag = "" if best.type == "strategic" else f" --type={best.type}"
    print_note(f"# kubectl patch {where}{best.target.kind.lower()} {best.target.name}{flag} --patch-file FILE")
    click.echo(yaml.dump(best.patch, Dumper=yaml.CSafeDumper, sort_keys=False), nl=False)


def _without_patch(diagnosis: Diagnosis) -> str:
    """Why there is none: nothing would help, or the server refuses what would."""
    if not diagnosis.refused_patches:
        return f"No patch of {diagnosis.subject} would help: {diagnosis.headline}"
    best = diagnosis.refused_patches[0]
    said = best.dry_run.message if best.dry_run is not None else ""
    return printable(
        f"No patch of {diagnosis.subject} can be applied: the API server refuses the nearest ({best.what}): {said}"
    )


def _trial_lines(patch: Patch) -> list[str]:
    """What the API server said to it, where that is not a plain yes."""
    if patch.dry_run is None or (patch.accepted and not patch.dry_run.message):
        return []
    said = printable(patch.dry_run.message)
    if patch.dry_run.result == "untried":
        return [f"not tried on the API server: {said}"]
    return [f"the API server refuses to change it: {said}"] if said and not patch.refused else []
