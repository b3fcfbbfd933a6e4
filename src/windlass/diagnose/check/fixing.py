"""`--fix`: the changes that findings propose, made in the files they came from.

Only what a rule proposes as a change of one field is made; comments, order and everything else stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windlass.diagnose.check.manifest import Manifest, read_manifests
from windlass.diagnose.check.rule import CheckFinding, check_all
from windlass.diagnose.evidence import Evidence
from windlass.dump.files import read_text
from windlass.dump.yaml_edit import set_field
from windlass.model.configuration import Settings
from windlass.model.errors import InputError

MOST_ROUNDS = 50
"""Changes to one file: each is made on the text that the one before left."""


def fixed_text(
    file: Path, evidence: Evidence | None, now: int, only: frozenset[str], settings: Settings | None = None
) -> tuple[str, list[CheckFinding]]:
    """The file's text with every proposed change made, and the findings that were mended."""
    text = read_text(file)
    mended: list[CheckFinding] = []
    if file.suffix == ".json":
        raise InputError("only YAML can be mended in place", file=str(file))
    for _ in range(MOST_ROUNDS):
        manifests = read_manifests([Path("-")], text)
        finding, manifest = _next(manifests, check_all(manifests, evidence, now, only, settings), mended)
        if finding is None or manifest is None:
            break
        assert finding.change is not None, finding
        text = set_field(
            text, manifest.document_index, manifest.list_index, finding.change.path, finding.change.value
        )
        mended.append(finding)
    return text, mended


def _next(
    manifests: Sequence[Manifest], findings: Sequence[CheckFinding], mended: Sequence[CheckFinding]
) -> tuple[CheckFinding | None, Manifest | None]:
    """The first change that has not been made yet, and the object that it is for."""
    done = {(finding.rule, finding.object, finding.path) for finding in mended}
    for finding in findings:
        if finding.change is None or (finding.rule, finding.object, finding.path) in done:
            continue
        for manifest in manifests:
            if manifest.title == finding.object and manifest.line_of(finding.path) == finding.line:
                return finding, manifest
    return None, None
