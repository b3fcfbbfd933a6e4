"""`windlass simulate` from the command line: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from windlass.cli import simulate as command
from windlass.cli.errors import run_command
from windlass.cli.main import cli

SMALL = "synthetic/small"
FLEET = """\
apiVersion: windlass.dev/v1
kind: Fleet
metadata: {name: lab}
spec:
  pools:
  - {name: h100, count: 4, cpu: 128, memory: 2Ti, gpus: [{model: H100, count: 8}]}
"""


class Shell:
    """Types command lines, and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        code = run_command(cli, ["simulate", *map(str, arguments)], "windlass")
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDLASS_TRACES", raising=False)
    return Shell(capsys)


def files_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


class TestWhatItPrints:
    def test_a_table_for_people(self, shell: Shell) -> None:
        assert shell(SMALL, "--policy", "fgd,windlass", "--seed", "42,43") == 0
        assert shell.out.startswith("synthetic/small · 64 nodes · 327 GPUs · seeds 42, 43")
        assert "vs fgd" in shell.out
        assert shell.err == ""

    def test_our_own_policy_and_seed_42_unless_told(self, shell: Shell) -> None:
        assert shell(SMALL, "-o", "json") == 0
        (item,) = json.loads(shell.out)["items"]
        assert (item["trace"], item["policy"], item["seed"]) == (SMALL, "windlass", 42)

    def test_a_document_for_scripts(self, shell: Shell) -> None:
        assert shell(SMALL, "--policy", "fgd,random", "--seed", "1..2", "-o", "json") == 0
        document = json.loads(shell.out)
        assert document["kind"] == "SimulationReport"
        assert [(item["policy"], item["seed"]) for item in document["items"]] == [
            ("fgd", 1),
            ("fgd", 2),
            ("random", 1),
            ("random", 2),
        ]
        assert shell.err == ""

    def test_yaml_and_csv_say_the_same_as_json(self, shell: Shell) -> None:
        def allocated(text: list[dict[str, object]]) -> list[int]:
            return [int(str(item["gpu_milli_allocated"])) for item in text]

        arguments = (SMALL, "--policy", "fgd", "--seed", "1..2", "-o")
        shell(*arguments, "json")
        as_json = allocated(json.loads(shell.out)["items"])
        shell(*arguments, "yaml")
        assert allocated(yaml.safe_load(shell.out)["items"]) == as_json
        shell(*arguments, "csv")
        assert allocated(list(csv.DictReader(io.StringIO(shell.out)))) == as_json

    def test_several_traces_one_after_another(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "fleet.yaml").write_text(FLEET)
        (tmp_path / "jobs.csv").write_text("# windlass-trace 1\njob,cpu,memory,gpu\ntrain,8,64Gi,8\n")
        assert shell(SMALL, "jobs.csv", "--nodes", "fleet.yaml", "--policy", "first-fit") == 0
        assert shell.out.index("synthetic/small ·") < shell.out.index("jobs.csv ·")

    def test_another_machine_park(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "fleet.yaml").write_text(FLEET)
        assert shell(SMALL, "--nodes", "fleet.yaml", "-o", "json") == 0
        (item,) = json.loads(shell.out)["items"]
        assert (item["nodes"], item["gpu_milli_total"]) == (4, 32_000)

    def test_the_list_of_traces(self, shell: Shell) -> None:
        assert shell("--list") == 0
        assert "synthetic/small" in shell.out
        assert "openb/default" in shell.out
        assert "WINDLASS_TRACES" in shell.err
        assert shell("--list", "-o", "json") == 0
        items = {item["name"]: item for item in json.loads(shell.out)["items"]}
        assert items[SMALL]["at_hand"]
        assert not items["openb/default"]["at_hand"]
        assert items["openb/default"]["source"]


class TestExplain:
    def run_and_pick(self, shell: Shell, placed: bool) -> str:
        """A pod of the small trace that the first-fit policy placed, or didn't."""
        assert shell(SMALL, "--policy", "first-fit", "--placements", "all.csv") == 0
        with open("all.csv", newline="") as file:
            found = {row["pod"] for row in csv.DictReader(file)}
        names = (f"default/pod-{number:06}" for number in range(10_000))
        return next(name for name in names if (name in found) == placed)

    def test_says_where_a_pod_went(self, shell: Shell) -> None:
        pod = self.run_and_pick(shell, placed=True)
        assert shell(SMALL, "--policy", "first-fit", "--explain", pod.removeprefix("default/")) == 0
        assert shell.out.startswith(f"{pod} was placed")

    def test_says_why_a_pod_found_no_node(self, shell: Shell) -> None:
        pod = self.run_and_pick(shell, placed=False)
        assert shell(SMALL, "--policy", "first-fit", "--explain", pod) == 0
        assert shell.out.startswith(f"{pod} found no node")
        assert "of 64 nodes: " in shell.out
        assert "nearest misses:" in shell.out

    def test_is_about_one_run(self, shell: Shell) -> None:
        assert shell(SMALL, "--seed", "1..2", "--explain", "pod-000001") == 2
        assert "a single run" in shell.err


class TestWhatItWrites:
    @pytest.mark.parametrize("ending", ["png", "svg", "html"])
    def test_a_plot(self, shell: Shell, tmp_path: Path, ending: str) -> None:
        assert shell(SMALL, "--plot", f"out.{ending}") == 0
        assert files_in(tmp_path) == [f"out.{ending}"]
        assert shell.err == f"wrote out.{ending}\n"

    def test_every_placement(self, shell: Shell, tmp_path: Path) -> None:
        assert shell(SMALL, "--placements", "all.csv", "-o", "json") == 0
        (item,) = json.loads(shell.out)["items"]
        with (tmp_path / "all.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == item["pods_placed"]
        assert files_in(tmp_path) == ["all.csv"]

    def test_the_same_seed_gives_the_same_bytes(self, shell: Shell, tmp_path: Path) -> None:
        for name in ("a.csv", "b.csv"):
            assert shell(SMALL, "--policy", "windlass,random", "--placements", name) == 0
        assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()

    def test_nothing_if_something_fails_on_the_way(
        self, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device", "all.csv")

        monkeypatch.setattr("windlass.simulate.runner.join_placements", fail)
        (tmp_path / "all.csv").write_text("before")
        assert shell(SMALL, "--plot", "out.svg", "--placements", "all.csv") == 2
        assert "No space left on device" in shell.err
        assert files_in(tmp_path) == ["all.csv"]
        assert (tmp_path / "all.csv").read_text() == "before"

    def test_ctrl_c_prints_what_there_is_and_writes_nothing(
        self, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt_in_the_second_run(_: object, done: float) -> None:
            if done > 1.1:
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(command.ProgressBar, "__call__", interrupt_in_the_second_run)
        assert shell(SMALL, "--seed", "1..5", "--plot", "out.svg", "--placements", "all.csv", "-o", "json") == 130
        items = json.loads(shell.out)["items"]
        assert [item["seed"] for item in items if not item["interrupted"]] == [1]
        assert shell.err.startswith("interrupted: 1 of 5 runs were finished")
        assert files_in(tmp_path) == []


class TestWhatItRefuses:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "no TRACE given"),
            ([SMALL, "--policy", "fdg"], "unknown policy 'fdg' (Did you mean 'fgd'?)"),
            ([SMALL, "--policy", "zzz"], "known: windlass"),
            ([SMALL, "--policy", ""], "empty name"),
            (["synthetic/smal"], "synthetic/small"),
            (["nothing/like/it"], "unknown trace"),
            (["openb/default"], "WINDLASS_TRACES"),
            ([SMALL, "--seed", "51..42"], "runs backwards. See 'windlass simulate --help'."),
            ([SMALL, "--jobs", "-1"], "--jobs"),
            ([SMALL, "--mix", "future"], "--mix"),
            ([SMALL, "--replay", "backwards"], "replay"),
            ([SMALL, "-o", "xml"], "--output"),
            ([SMALL, "--plot", "out.gif"], "out.gif: a plot ends in .png, .svg, .html"),
            ([SMALL, "--plot", "no/such/out.png"], "folder does not exist"),
            ([SMALL, "--placements", "no/such/all.csv"], "folder does not exist"),
            ([SMALL, "--plot", "a.png", "--placements", "./a.png"], "name the same file"),
            ([SMALL, "--nodes", "none.yaml"], "none.yaml: there is no such file"),
            ([SMALL, "--traces", "nowhere"], "nowhere: there is no such folder"),
            ([SMALL, "--explain", "nobody"], "has no pod 'nobody'"),
            (["missing.csv"], "missing.csv"),
            ([SMALL, "--sed", "42"], "--seed"),
            (["--list", "-o", "csv"], "--list prints a table"),
        ],
    )
    def test_with_one_line_exit_2_and_no_file(
        self, shell: Shell, tmp_path: Path, arguments: list[str], words: str
    ) -> None:
        assert shell(*arguments) == 2
        assert words in shell.err
        assert shell.err.count("\n") == 1
        assert shell.out == ""
        assert files_in(tmp_path) == []

    def test_a_stale_folder_in_the_environment_only_where_it_is_needed(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WINDLASS_TRACES", "gone")
        assert shell(SMALL) == 0
        assert shell("openb/default") == 2
        assert "gone" in shell.err

    def test_an_impossible_node_with_its_line(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "fleet.yaml").write_text(FLEET.replace("count: 8", "count: 800"))
        assert shell(SMALL, "--nodes", "fleet.yaml") == 2
        assert shell.err.startswith("error: fleet.yaml:6:")

    def test_a_park_to_which_no_pod_comes(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "fleet.yaml").write_text(FLEET.replace("gpus: [{model: H100, count: 8}]", "gpus: []"))
        assert shell(SMALL, "--nodes", "fleet.yaml") == 2
        assert "no pod of synthetic/small arrives, since the nodes have no GPUs" in shell.err

    def test_an_empty_trace(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "jobs.csv").write_text("")
        assert shell("jobs.csv") == 2
        assert "jobs.csv" in shell.err


def test_the_guides_example_of_a_scenario_holds(shell: Shell, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/scenarios.md").read_text()
    file = tmp_path / "example.yaml"
    file.write_text(guide.partition("## A file\n\n```yaml\n")[2].partition("```")[0])
    assert shell(file) == 0, shell.out
    assert "4 of 4 expectations hold" in shell.out
