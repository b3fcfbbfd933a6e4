"""`windlass node advise`: whole GPU, MIG, MPS or time-slicing for a workload; `sharing.advise` decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from windlass.cli.output import (
    output_option,
    plain_table,
    print_document,
    print_note,
    print_table,
    windlass_document,
)
from windlass.cli.parameters import default_option
from windlass.model.errors import InputError
from windlass.model.gpu_models import find_gpu_model, mig_geometry_of_model
from windlass.sharing.advise import ISOLATION, Advice, Card, SharingWorkload, TenantLoad
from windlass.sharing.advise import advise as choose

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = """\b
Examples:
  windlass node advise --gpu H200 --tenants 7 --memory 12 --busy 0.3 --multiprocessors 0.2
  windlass node advise --gpu A100-80 --tenants 2 --memory 30 --isolation strict -o json
"""


@click.command(epilog=EXAMPLES)
@click.option("--gpu", required=True, help="Model of the GPU: H200, A100-80, L40S, T4, …")
@click.option("--tenants", type=click.IntRange(1, 48), required=True, help="How many would share it.")
@click.option("--memory", type=click.FloatRange(0), default=0.0, help="GiB that each tenant needs.")
@default_option(
    "--isolation",
    type=click.Choice(ISOLATION),
    default="none",
    help="What neighbours must not touch: nothing, memory, faults, or anything at all.",
)
@click.option("--latency-sensitive", is_flag=True, help="The tenants' requests are latency-sensitive.")
@default_option("--busy", type=click.FloatRange(0, 1), default=1.0, help="Part of the time with work.")
@default_option(
    "--multiprocessors",
    type=click.FloatRange(0, 1),
    default=1.0,
    help="Part of the multiprocessors that a tenant fills while busy (DCGM_FI_PROF_SM_ACTIVE, alone).",
)
@default_option(
    "--bandwidth",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Part of the memory bandwidth that it uses while busy (DCGM_FI_PROF_DRAM_ACTIVE, alone).",
)
@default_option(
    "--request-us",
    type=click.FloatRange(1),
    default=1000.0,
    help="How long one request takes with the GPU alone, in microseconds.",
)
@output_option("table", "json", "yaml")
def advise(
    gpu: str,
    tenants: int,
    memory: float,
    isolation: str,
    latency_sensitive: bool,
    busy: float,
    multiprocessors: float,
    bandwidth: float,
    request_us: float,
    output: str,
) -> None:
    """Whole GPU, MIG, MPS or time-slicing for a workload, and why.

    Isolation decides first, what the hardware can do second, the load pattern third. The slow-down is a prediction.
    """
    model = find_gpu_model(gpu)
    if model is None:
        raise InputError(f"GPU model {gpu!r} is not known", remedy="try H200, H100, A100-80, A30, L40S or T4")
    major, minor = model.compute_capability.split(".")
    card = Card(
        name=model.product,
        memory_mib=model.memory_mib,
        compute=(int(major), int(minor)),
        geometry=mig_geometry_of_model(model.product),
    )
    load = TenantLoad(busy=busy, multiprocessors=multiprocessors, bandwidth=bandwidth, request_us=request_us)
    workload = SharingWorkload(
        tenants=tenants,
        memory_mib=round(memory * 1024),
        isolation=isolation,
        latency_sensitive=latency_sensitive,
        load=load,
    )
    advice = choose(workload, card)
    if output == "table":
        print_table(_table(advice))
        print_note(f"{advice.way}: {advice.reason}")
    else:
        print_document(windlass_document("SharingAdvice", **msgspec.to_builtins(advice)), output)


def _table(advice: Advice) -> Table:
    rows = []
    for option in advice.options:
        slow = f"{option.slow_down:.2f}×" if option.possible else "–"
        chosen = "→" if option.way == advice.way else ""
        rows.append((chosen, option.way, option.profile, slow, option.reason))
    return plain_table(("", "WAY", "PROFILE", "SLOWER BY", "WHY, OR WHY NOT"), rows)
