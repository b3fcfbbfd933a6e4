"""The kubectl session as text: commands with what they must say, read from `session/*.txt` and run with a real kubectl.

    $ COMMAND        run by bash; a here-document goes on to its EOF
    ~$ COMMAND       the same, again and again until it says what it must (a minute and more)
    some line        must be among the lines of the output, in this order; … stands for anything
    !some line       must not be there
    => 1             the exit code, if it is not 0 (`1..3`: one of these)

`$NS`, `$NODE` and the other variables of the session are the same in commands and in what is expected.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SESSIONS = Path(__file__).with_name("session")
PATIENCE = 180.0
ONE_COMMAND = 300.0


@dataclass
class Step:
    line: int
    command: str
    again: bool = False
    said: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)
    codes: range = range(1)


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str


def read(path: Path) -> list[Step]:
    steps: list[Step] = []
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        if line.startswith(("$ ", "~$ ")):
            command = line.partition("$ ")[2]
            if "<<'EOF'" in command:
                for _, more in lines:
                    command += "\n" + more
                    if more == "EOF":
                        break
            steps.append(Step(number, command, again=line.startswith("~")))
        elif line.startswith("=> "):
            first, _, last = line[3:].partition("..")
            steps[-1].codes = range(int(first), int(last or first) + 1)
        elif line.startswith("!"):
            steps[-1].unsaid.append(line[1:])
        elif line and not (line.startswith("#") and not steps):
            steps[-1].said.append(line)
    return steps


def run(step: Step, folder: Path, environment: Mapping[str, str]) -> str:
    """Nothing, or what went wrong."""
    deadline = time.monotonic() + PATIENCE
    while True:
        problem = _once(step, folder, environment)
        if not problem or not step.again or time.monotonic() > deadline:
            return problem
        time.sleep(0.3)


def _once(step: Step, folder: Path, environment: Mapping[str, str]) -> str:
    outcome = execute(step.command, folder, environment)
    problem = complaint(step, outcome, environment)
    if not problem:
        return ""
    said = f"  exit code {outcome.code}, it said:\n{_indented(outcome.output)}"
    return f"line {step.line}: {step.command}\n  {problem}\n{said}"


def execute(command: str, folder: Path, environment: Mapping[str, str]) -> Outcome:
    try:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ONE_COMMAND,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        return Outcome(-1, f"{said}\n(still running after {ONE_COMMAND:.0f} s)")
    return Outcome(done.returncode, done.stdout)


def complaint(step: Step, outcome: Outcome, environment: Mapping[str, str]) -> str:
    """What is not as the session has it; empty if all is."""
    if outcome.code not in step.codes:
        return f"the exit code should be {step.codes.start}"
    lines = [line.rstrip() for line in outcome.output.splitlines()]
    at = 0
    for wanted in step.said:
        form = pattern(wanted, environment)
        found = next((number for number in range(at, len(lines)) if form.fullmatch(lines[number])), None)
        if found is None:
            return f"missing: {wanted}"
        at = found + 1
    for unwanted in step.unsaid:
        form = pattern(unwanted, environment)
        if any(form.fullmatch(line) for line in lines):
            return f"should not be there: {unwanted}"
    return ""


def pattern(line: str, environment: Mapping[str, str]) -> re.Pattern[str]:
    filled = re.sub(r"\$([A-Z]+)", lambda name: environment.get(name[1], name[0]), line.rstrip())
    return re.compile(".*".join(re.escape(part) for part in filled.split("…")))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-40:])
