"""`windlass node validate`: runs `node.validator` and prints every check with its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from windlass.cli.errors import EXIT_DONE, EXIT_FINDINGS
from windlass.cli.node_options import hardware_options, open_backend
from windlass.cli.output import (
    output_option,
    plain_table,
    print_document,
    print_note,
    print_table,
    windlass_document,
)
from windlass.node.agent import AgentOptions
from windlass.node.validator.checks import Validation
from windlass.node.validator.checks import validate as run_checks
from windlass.node.validator.outcome import FAIL

if TYPE_CHECKING:
    from rich.table import Table


@click.command()
@hardware_options
@click.option("--expected-driver", default="", help="The driver that the other nodes have.")
@click.option("--without-compute", is_flag=True, help="Leave the computation out, for a node that is hard at work.")
@output_option("table", "json", "yaml")
def validate(
    fleet: Path | None, node_name: str, root: Path, expected_driver: str, without_compute: bool, output: str
) -> int:
    """Is this node fit for GPU work? Every check with its evidence; exit 1 if one fails.

    All GPUs on the PCI bus are with the driver, library and kernel module agree, memory is what the model should have,
    NVLink is up where there is any, nothing waits to be remapped, nothing is slowed down, and a computation on every
    GPU and MIG device gives the right answer (through the driver alone: no CUDA toolkit is needed).
    """
    backend = open_backend(fleet, node_name, root)
    compute = None if without_compute else backend.compute
    found = run_checks(backend, AgentOptions(root=root).host, compute, expected_driver=expected_driver)
    if output == "table":
        print_table(validation_table(found))
    else:
        checks = msgspec.to_builtins(found.checks)
        print_document(windlass_document("NodeValidation", passed=found.passed, checks=checks), output)
    if not found.passed:
        failed = sum(check.outcome == FAIL for check in found.checks)
        print_note(f"{failed} of {len(found.checks)} checks failed: this node is not fit for GPU work")
    return EXIT_DONE if found.passed else EXIT_FINDINGS


def validation_table(found: Validation) -> Table:
    rows = []
    for check in found.checks:
        gpu = "" if check.gpu is None else str(check.gpu)
        remedy = check.remedy if check.outcome == "fail" else ""
        rows.append((gpu, check.name, check.outcome, check.evidence, remedy))
    return plain_table(("GPU", "CHECK", "OUTCOME", "EVIDENCE", "WHAT TO DO"), rows)
