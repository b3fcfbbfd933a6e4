"""`windlass bench claims`: reads the command line; `windlass_bench.claims` checks the claims and makes the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.errors import EXIT_DONE, EXIT_INTERRUPTED, check_names
from windlass.cli.output import atomic_output_file, output_option, print_document, print_note, print_table
from windlass.cli.parameters import NameList, default_option, traces_option
from windlass.cli.progress import ProgressBar
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass_bench.claims.claim import Claim
    from windlass_bench.claims.report import ClaimRequest

EXAMPLES = """\b
Examples:
  windlass bench claims --quick
  windlass bench claims --part sharing
  windlass bench claims --part oversubscription,classes -o markdown
  windlass bench claims --part spread --plot pictures/
"""


@click.command(epilog=EXAMPLES)
@click.option("--part", type=NameList(), help="Only these: sharing, oversubscription, classes, spread, locality, spot.")
@click.option("--quick/--all", help="Smaller workloads for a look, or those of the documentation (the default).")
@default_option("-s", "--seed", type=click.IntRange(0), default=42, help="Of all workloads.")
@output_option("table", "json", "yaml", "markdown")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also draw them: a folder, for one PNG each of those that have a picture.",
)
@traces_option
def claims(
    part: tuple[str, ...] | None, quick: bool, seed: int, output: str, plot: Path | None, traces: Path | None
) -> int:
    """Check what guides to GPU work on Kubernetes claim, by simulation with the engine's own decisions.

    Each part prints the claim, whether it holds, and under which conditions it would.
    """
    from windlass_bench.claims import report

    check_names("part", part or (), report.PARTS)
    for folder, option in ((traces, "--traces or WINDLASS_TRACES"), (plot, "--plot")):
        if folder is not None and not folder.is_dir():
            raise InputError("there is no such folder", file=str(folder), remedy=f"{option} names it")
    parts = [name for name in report.PARTS if name in (part or report.PARTS)]
    if traces is None and {"oversubscription", "spot"}.intersection(parts):
        print_note("No public trace files (--traces or WINDLASS_TRACES): a synthetic trace takes their place.")
    request = report.ClaimRequest(seed, quick, traces)
    found, interrupted = _check_all(parts, request)
    if output in ("json", "yaml"):
        print_document(report.claim_document(found, request, interrupted), output)
    elif output == "markdown":
        click.echo(report.claim_markdown(found), nl=False)
    else:
        print_table(report.claim_tables(found))
    if plot is not None:
        _draw(found, plot)
    if interrupted:
        print_note(f"interrupted: {len(found)} of {len(parts)} parts were finished")
        return EXIT_INTERRUPTED
    return EXIT_DONE


def _check_all(parts: list[str], request: ClaimRequest) -> tuple[list[Claim], bool]:
    from windlass_bench.claims import report

    found: list[Claim] = []
    with ProgressBar(f"{len(parts)} claims", len(parts)) as progress:
        for before, name in enumerate(parts):

            def report_progress(done: float, before: int = before) -> None:
                progress(before + done)

            try:
                found.append(report.check_claim(name, request, report_progress))
            except KeyboardInterrupt:
                return found, True
    return found, False


def _draw(claims: list[Claim], folder: Path) -> None:
    from windlass_bench.claims.plot import draw_claim

    for claim in claims:
        if claim.panels:
            with atomic_output_file(folder / f"{claim.part}.png") as path:
                draw_claim(claim, path)
