"""`windlass bench claims` as a whole: which parts there are, and what they look like to people and scripts.

`cli.claims` calls it and prints what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass import __version__
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass_bench.claims import classes, oversubscription, sharing, spot, spread
from windlass_bench.claims.claim import Claim, OnProgress
from windlass_bench.claims.locality import check_locality
from windlass_bench.claims.mixture import WorkloadMixture
from windlass_bench.report import report_markdown, report_tables, section_documents

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

KIND = "ClaimReport"
PARTS = ("sharing", "oversubscription", "classes", "spread", "locality", "spot")
DEFAULT_SEED = 42


class ClaimRequest(msgspec.Struct, frozen=True):
    """What was asked for on the command line."""

    seed: int = DEFAULT_SEED
    quick: bool = False
    traces_dir: Path | None = None


def check_claim(part: str, request: ClaimRequest, on_progress: OnProgress = lambda done: None) -> Claim:
    return CHECKS[part](request, on_progress)


def _sharing(request: ClaimRequest, on_progress: OnProgress) -> Claim:
    scale = sharing.QUICK if request.quick else sharing.Scale()
    return sharing.check_sharing(scale, request.seed, on_progress)


def _oversubscription(request: ClaimRequest, on_progress: OnProgress) -> Claim:
    scale = oversubscription.QUICK if request.quick else oversubscription.Scale()
    return oversubscription.check_oversubscription(scale, request.seed, request.traces_dir, on_progress)


def _classes(request: ClaimRequest, on_progress: OnProgress) -> Claim:
    return classes.check_classes(classes.QUICK if request.quick else WorkloadMixture(), request.seed, on_progress)


def _spread(request: ClaimRequest, on_progress: OnProgress) -> Claim:
    return spread.check_spread(spread.QUICK if request.quick else spread.Scale(), request.seed, on_progress)


def _locality(request: ClaimRequest, on_progress: OnProgress) -> Claim:
    return check_locality(request.seed, on_progress)


def _spot(request: ClaimRequest, on_progress: OnProgress) -> Claim:
    return spot.check_spot(spot.QUICK if request.quick else spot.Scale(), request.seed, request.traces_dir, on_progress)


CHECKS: dict[str, Callable[[ClaimRequest, OnProgress], Claim]] = {
    "sharing": _sharing,
    "oversubscription": _oversubscription,
    "classes": _classes,
    "spread": _spread,
    "locality": _locality,
    "spot": _spot,
}


def claim_document(claims: Sequence[Claim], request: ClaimRequest, interrupted: bool) -> dict[str, Any]:
    return {
        "apiVersion": WINDLASS_API_VERSION,
        "kind": KIND,
        "version": __version__,
        "seed": request.seed,
        "quick": request.quick,
        "interrupted": interrupted,
        "items": [
            {
                "part": claim.part,
                "claim": claim.claim,
                "verdict": claim.verdict,
                "found": claim.found,
                "conditions": list(claim.conditions),
                "sections": section_documents(claim.sections),
            }
            for claim in claims
        ],
    }


def claim_markdown(claims: Sequence[Claim]) -> str:
    """As it stands in docs/claims.md."""
    parts = []
    for claim in claims:
        conditions = "\n".join(f"- {each}" for each in claim.conditions)
        parts.append(
            f"## {claim.part}\n\n**Claim:** {claim.claim}\n\n**Found:** it {claim.verdict}. {claim.found}\n\n"
            f"{conditions}\n\n{report_markdown(claim.sections)}"
        )
    return "\n".join(parts)


def claim_tables(claims: Sequence[Claim]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for claim in claims:
        parts += ["", Text.assemble((f"{claim.part}: ", "bold"), claim.claim)]
        parts.append(Text.assemble((f"{claim.verdict}: ", "bold"), claim.found))
        parts += [Text(f"- {each}") for each in claim.conditions]
        parts.append(report_tables(claim.sections))
    return Group(*parts)
