"""Findings as documents: CheckReport, SARIF, and GitHub annotations. Called by `cli.check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.diagnose.check.rule import LEVELS, RULES, CheckFinding
from windlass.dump.configuration import UsedConfiguration
from windlass.model.names.windlass import WINDLASS_API_VERSION

_SARIF = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB = {"error": "error", "warning": "warning", "info": "notice"}


def document(findings: Sequence[CheckFinding], configuration: UsedConfiguration | None = None) -> dict[str, Any]:
    """`CheckReport`; without a configuration if no cluster was used."""
    rows = []
    for finding in findings:
        row = msgspec.to_builtins(finding)
        row.pop("change")
        rows.append(row)
    used = {"configuration": configuration.document} if configuration is not None else {}
    return {"apiVersion": WINDLASS_API_VERSION, "kind": "CheckReport", "findings": rows, **used}


def sarif(findings: Sequence[CheckFinding], version: str) -> dict[str, Any]:
    """SARIF 2.1.0, one run."""
    rules = [
        {
            "id": rule.name,
            "shortDescription": {"text": rule.summary},
            "defaultConfiguration": {"level": _SARIF[rule.level]},
        }
        for rule in RULES.values()
    ]
    results = [
        {
            "ruleId": finding.rule,
            "level": _SARIF[finding.level],
            "message": {"text": format_finding(finding)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": finding.file},
                        "region": {"startLine": max(1, finding.line)},
                    }
                }
            ],
        }
        for finding in findings
    ]
    driver = {"name": "windlass", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def github_annotations(findings: Sequence[CheckFinding]) -> list[str]:
    """GitHub workflow commands that annotate lines."""
    return [
        f"::{_GITHUB[finding.level]} file={_escaped(finding.file, True)},line={finding.line},title={finding.rule}::"
        f"{_escaped(format_finding(finding), False)}"
        for finding in findings
    ]


def _escaped(text: str, is_property: bool) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text


def format_finding(finding: CheckFinding) -> str:
    where = f" {finding.path}:" if finding.path else ""
    fix = f" ({finding.fix})" if finding.fix else ""
    return f"{finding.object}:{where} {finding.message}{fix}"


def reaches_level(findings: Sequence[CheckFinding], level: str) -> bool:
    """Whether any finding has at least that level."""
    return any(LEVELS.index(finding.level) >= LEVELS.index(level) for finding in findings)
