"""The command as a whole: what it says about itself, how fast it gets there, and how it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from windlass import __version__
from windlass.cli import errors
from windlass.cli.main import COMMANDS, cli
from windlass.model.errors import ClusterUnreachable, InputError, WindlassError

BIN = Path(sys.executable).parent
HEAVY = ("matplotlib", "msgspec", "numba", "numpy", "rich", "yaml")


def run(*arguments: str, program: str = "windlass", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / program, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )


def call(command: click.Command, *arguments: str) -> int:
    return errors.run_command(command, list(arguments), "windlass")


def command_that_raises(error: BaseException) -> click.Command:
    @click.command()
    def failing() -> None:
        raise error

    return failing


class TestWhatItSays:
    def test_version_is_the_packages(self) -> None:
        assert run("--version").stdout == f"windlass {__version__}\n"

    @pytest.mark.parametrize("argument", ["--version", "--help"])
    def test_starts_without_the_heavy_libraries(self, argument: str) -> None:
        program = (
            "import sys\n"
            "from windlass.cli.main import main\n"
            f"sys.argv = ['windlass', '{argument}']\n"
            "try:\n    main()\n"
            "except SystemExit:\n"
            f"    print('loaded:', sorted(set({HEAVY}) & set(sys.modules)))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("loaded: []\n")

    def test_help_names_every_command_with_its_summary_and_where_to_start(self) -> None:
        text = run("--help").stdout
        for name, entry in COMMANDS.items():
            assert name in text
            assert entry.summary in text
        assert "Start here" in text

    def test_the_bare_command_shows_the_help(self) -> None:
        bare = run()
        assert (bare.returncode, bare.stdout) == (0, run("--help").stdout)

    def test_every_listed_command_can_be_loaded_and_helps(self, capsys: pytest.CaptureFixture[str]) -> None:
        for name in COMMANDS:
            assert call(cli, name, "--help") == 0
            assert capsys.readouterr().out.startswith(f"Usage: windlass {name}")

    def test_kubectl_calls_it_by_its_other_name(self) -> None:
        helped = run("--help", program="kubectl-windlass")
        assert helped.stdout.startswith("Usage: kubectl windlass ")


class TestHowItFails:
    def test_an_unknown_command_is_answered_with_the_nearest(self) -> None:
        failed = run("simulat")
        assert (failed.returncode, failed.stdout) == (2, "")
        assert failed.stderr.count("\n") == 1
        assert "Did you mean 'simulate'?" in failed.stderr

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (InputError("no such thing", file="a.yaml", line=3), 2, "error: a.yaml:3: no such thing"),
            (ClusterUnreachable("no answer"), 3, "error: no answer"),
            (WindlassError("no"), 1, "error: no"),
            (click.UsageError("not\nlike this"), 2, "error: not like this"),
            (FileNotFoundError(2, "No such file or directory", "x.csv"), 2, "error: x.csv: No such file"),
            (KeyboardInterrupt(), 130, "error: interrupted"),
            (click.Abort(), 130, "error: interrupted"),
            (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
        ],
    )
    def test_an_exception_is_one_line_and_an_exit_code(
        self, error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert call(command_that_raises(error)) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert words in printed.err
        assert printed.err.count("\n") == 1

    def test_the_traceback_is_there_for_whoever_asks(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call(command_that_raises(ZeroDivisionError("oh")))
        assert "WINDLASS_DEBUG=1" in capsys.readouterr().err
        monkeypatch.setenv("WINDLASS_DEBUG", "1")
        call(command_that_raises(ZeroDivisionError("oh")))
        assert "Traceback" in capsys.readouterr().err

    def test_a_command_says_its_own_exit_code(self) -> None:
        @click.command()
        def finds_something() -> int:
            return 1

        assert call(finds_something) == 1

    def test_a_reader_that_leaves_early_is_no_error(self) -> None:
        program = (
            "import click, sys\n"
            "from windlass.cli.errors import run_command\n"
            "@click.command()\n"
            "def chatty():\n"
            "    for _ in range(100_000): click.echo('x' * 80)\n"
            "sys.exit(run_command(chatty, [], 'windlass'))\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait() == 0


class TestSuggestions:
    def test_close_names_are_suggested_and_distant_ones_listed(self) -> None:
        for name, hint in (("fdg", "Did you mean 'fgd'?"), ("zzzz", "known: fgd, pack")):
            with pytest.raises(InputError, match=re.escape(hint)):
                errors.check_names("policy", ["pack", name], ["fgd", "pack"])


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_script_for_each_shell(self, shell: str) -> None:
        done = run("completion", shell)
        assert done.returncode == 0
        assert f"_WINDLASS_COMPLETE={shell}_complete" in done.stdout

    def test_completes_commands(self) -> None:
        done = run(_WINDLASS_COMPLETE="bash_complete", COMP_WORDS="windlass sim", COMP_CWORD="1")
        assert done.stdout == "plain,simulate\n"

    def test_completes_traces_and_files(self) -> None:
        done = run(_WINDLASS_COMPLETE="bash_complete", COMP_WORDS="windlass simulate synthetic/s", COMP_CWORD="2")
        assert done.stdout.split() == ["plain,synthetic/small", "file,synthetic/s"]

    def test_completes_policies_after_a_comma(self) -> None:
        words = "windlass simulate synthetic/small --policy fgd,windl"
        done = run(_WINDLASS_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="4")
        assert done.stdout == "plain,fgd,windlass\n"

    def test_an_unknown_shell_is_refused(self) -> None:
        assert run("completion", "tcsh").returncode == 2
