"""Turns problems in the output of `nvidia-smi` (table and `-q` report) into lines that `log_patterns` matches.

Called by `gpu_stack` and `pod_startup` on logs of hosts and containers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from windlass.diagnose.evidence import LogLines
from windlass.model.digits import is_digits

ROW = re.compile(
    r"^\|\s*(?P<index>\d+)\s+(?P<name>[A-Za-z][^|]*?)\s+(On|Off)\s*\|\s*\S+\s+\w+\s*\|\s*(?P<ecc>\S+)\s*\|"
)
"""A GPU's first line in the table: index, name, and uncorrected errors since the driver was loaded."""
FIELD = re.compile(r"^(?P<indent>\s*)(?P<key>[A-Z][\w .()/-]*?)\s*(?::\s*(?P<value>.*\S)\s*)?$")


def annotate_nvidia_smi_logs(logs: Sequence[LogLines]) -> list[LogLines]:
    """The logs, with a line added for each problem in the output of nvidia-smi."""
    return [
        LogLines(log.origin, [*log.lines, *describe_problems(log.lines)]) if "nvidia-smi" in log.origin else log
        for log in logs
    ]


def describe_problems(lines: Sequence[str]) -> list[str]:
    return [*_of_table(lines), *_of_report(lines)]


def _of_table(lines: Sequence[str]) -> list[str]:
    problems = []
    for line in lines:
        row = ROW.match(line)
        if row is not None and is_digits(row["ecc"]) and int(row["ecc"]):
            problems.append(f"GPU {row['index']} has {row['ecc']} uncorrectable ECC errors")
        if "ERR!" in line:
            problems.append("GPU requires reset: nvidia-smi shows ERR! for it")
        if re.search(r"\|\s+(Enabled|Disabled)\*\s+\|", line):
            problems.append("MIG mode change pending (nvidia-smi shows * behind the mode)")
    return problems


def _of_report(lines: Sequence[str]) -> list[str]:
    """`nvidia-smi -q`: keys below sections, nested by indentation."""
    problems: list[str] = []
    sections: list[tuple[int, str]] = []
    modes: dict[str, str] = {}
    for line in lines:
        field = FIELD.match(line)
        if field is None:
            continue
        depth, key, value = len(field["indent"]), field["key"], field["value"]
        while sections and sections[-1][0] >= depth:
            sections.pop()
        if value is None:
            sections.append((depth, key))
            continue
        path = [name for _, name in sections]
        if "MIG Mode" in path:
            modes[key] = value
            if {modes.get("Current"), modes.get("Pending")} == {"Enabled", "Disabled"}:
                problems.append(f"MIG mode change pending: {modes.pop('Current')} now, {modes.pop('Pending')} to come")
        problems += _of_field(path, key, value)
    return problems


def _of_field(path: Sequence[str], key: str, value: str) -> list[str]:
    if "Fabric" in path and key == "State" and value in ("In Progress", "Not Started"):
        return [f"Fabric state: {value.lower()}"]
    if "ECC Errors" in path and "Uncorrectable" in key and is_digits(value) and int(value):
        return [f"{value} uncorrectable ECC errors ({' '.join(path[-1:])})"]
    if "Remapping Failure" in key and value == "Yes":
        return ["row remapping failed"]
    if key == "GPU Reset" and value == "Required":
        return ["GPU requires reset"]
    return []
