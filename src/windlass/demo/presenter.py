"""The stage on which the story is played: says things, runs commands and shows what they print, waits, checks.

`demo.steps` tells; this prints. Everything that a step claims goes through `check` or `until`, so that a demo which
went through has shown what it says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from windlass.demo.api import ApiClient
from windlass.demo.fixtures import running_pods
from windlass.demo.kubectl import Kubectl

_Value = TypeVar("_Value")
STEP_TIMEOUT_SECONDS = 240.0
"""Seconds that a step may take on a busy machine."""
READING_SECONDS = 1.5
"""Seconds between steps, for those who read along."""
WIDTH = 96


class CheckFailed(Exception):
    """A step did not come out as it says."""


class Presenter:
    def __init__(self, api: ApiClient, kubectl: Kubectl, kubeconfig: Path, *, step: bool, fast: bool) -> None:
        """Files that commands write go into a folder of its own, which `close` removes."""
        self.api, self._kubectl, self._kubeconfig = api, kubectl, kubeconfig
        self._step, self._fast = step, fast
        self._clock = time.monotonic()
        self._files = tempfile.TemporaryDirectory(prefix="windlass-demo-")
        self._folder = Path(self._files.name)

    def close(self) -> None:
        self._files.cleanup()

    def print_title(self, number: int, of: int, text: str) -> None:
        click.echo()
        click.secho(f"{number}/{of}  {text}", bold=True)

    def print_text(self, text: str) -> None:
        for paragraph in text.strip().split("\n\n"):
            click.echo(textwrap.fill(" ".join(paragraph.split()), WIDTH))

    def show_kube_scheduler(self, outcome: str, test: str) -> None:
        """What the stock scheduler makes of the same, as a test on a real control plane recorded it."""
        text = f"kube-scheduler, same input: {outcome} (recorded on a real control plane by {test})"
        click.secho(textwrap.fill(text, WIDTH, initial_indent="  | ", subsequent_indent="  | "), fg="yellow")

    def apply(self, *manifests: str, expect_failure: bool = False, elided: str = "") -> str:
        stdin = "---\n".join(manifests)
        return self.kubectl("apply", "-f", "-", stdin=stdin, expect_failure=expect_failure, elided=elided)

    def kubectl(self, *arguments: str, stdin: str = "", expect_failure: bool = False, elided: str = "") -> str:
        """Runs the command, shown with its manifest, or with the first object of it and the words `more`."""
        manifest = textwrap.dedent(stdin).strip("\n")
        shown = f"{manifest.partition('---')[0]}# {elided}" if elided else manifest
        self._show("kubectl " + " ".join(arguments), shown)
        code, output = self._kubectl.run(list(arguments), manifest + "\n" if manifest else "")
        self._print(output)
        if (code != 0) is not expect_failure:
            raise CheckFailed(f"kubectl {' '.join(arguments)} ended with exit code {code}")
        return output

    def windlass(self, *arguments: str, exit_codes: tuple[int, ...] = (0,), shown: bool = True) -> str:
        if shown:
            self._show("windlass " + " ".join(arguments), "")
        program = [sys.executable, "-c", "from windlass.cli.main import main; main()"]
        done = subprocess.run(
            [*program, *arguments],
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig.absolute()), "COLUMNS": str(WIDTH)},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if shown else subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if shown:
            self._print(done.stdout)
        if done.returncode not in exit_codes:
            raise CheckFailed(f"windlass {' '.join(arguments)} ended with exit code {done.returncode}")
        return done.stdout

    def wait_for_pods(self, prefix: str, count: int, what: str) -> None:
        """Until so many pods whose names begin like this run."""
        self.wait_for(lambda: len(running_pods(self.api, prefix)) == count, what)

    def wait_for(self, condition: Callable[[], _Value], what: str, *, announce: bool = True) -> _Value:
        """What `look` returns once it is true."""
        deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
        while True:
            value = condition()
            if value:
                if announce:
                    click.secho(f"  ✓ {what}", fg="green")
                return value
            if time.monotonic() > deadline:
                raise CheckFailed(f"not within {STEP_TIMEOUT_SECONDS:.0f} s: {what}")
            time.sleep(0.2)

    def check(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise CheckFailed(what)
        click.secho(f"  ✓ {what}", fg="green")

    def start_clock(self) -> None:
        self._clock = time.monotonic()

    def print_elapsed(self, text: str) -> None:
        """A line with the seconds since `start_clock`."""
        click.echo(f"  {time.monotonic() - self._clock:5.1f} s  {text}")

    def pause(self) -> None:
        if self._step:
            click.pause("  (press any key)")
        elif not self._fast:
            time.sleep(READING_SECONDS)

    def _show(self, command: str, manifest: str) -> None:
        click.secho(f"  $ {command}" + (" <<EOF" if manifest else ""), fg="cyan")
        for line in manifest.splitlines():
            click.secho(f"    {line}", dim=True)
        if manifest:
            click.secho("    EOF", dim=True)
        if not self._fast:
            time.sleep(READING_SECONDS / 3)

    def _print(self, output: str, most: int = 60) -> None:
        lines = output.rstrip().splitlines()
        for line in lines[:most]:
            click.echo(f"    {line}")
        if len(lines) > most:
            click.echo(f"    … ({len(lines) - most} more lines)")
