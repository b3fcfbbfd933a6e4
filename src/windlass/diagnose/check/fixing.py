"""`check --fix`: applies the changes that findings propose to the YAML text.

Called by `cli.check`. Only single fields change; comments and order stay.
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
"""Most changes of one file. Rules run again after every change, since lines move."""


def fixed_text(
    file: Path, evidence: Evidence | None, now: int, only: frozenset[str], settings: Settings | None = None
) -> tuple[str, list[CheckFinding]]:
    """(the file's text with every proposed change, the findings that it fixes)."""
    text = read_text(file)
    mended: list[CheckFinding] = []
    if file.suffix == ".json":
        raise InputError("only YAML files can be fixed in place", file=str(file))
    for _ in range(MOST_ROUNDS):
        manifests = read_manifests([Path("-")], text)
        finding, manifest = _next(manifests, check_all(manifests, evidence, now, only, settings), mended)
        if finding is None or manifest is None:
            break
        assert finding.change is not None, finding
        text = set_field(text, manifest.document_index, manifest.list_index, finding.change.path, finding.change.value)
        mended.append(finding)
    return text, mended


def _next(
    manifests: Sequence[Manifest], findings: Sequence[CheckFinding], mended: Sequence[CheckFinding]
) -> tuple[CheckFinding | None, Manifest | None]:
    """The first finding with a change that was not applied yet, and its manifest."""
    done = {(finding.rule, finding.object, finding.path) for finding in mended}
    for finding in findings:
        if finding.change is None or (finding.rule, finding.object, finding.path) in done:
            continue
        for manifest in manifests:
            if manifest.title == finding.object and manifest.line_of(finding.path) == finding.line:
                return finding, manifest
    return None, None
