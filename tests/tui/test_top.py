"""`windlass top`: what is drawn, what keys do, and the whole of it in a terminal of 80 columns and 24 rows."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import msgspec
import pytest
from tests.telemetry.test_usage import START

from windlass.telemetry.demand import Demand, WaitingWork
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import STATES, GpuShare, Ledger
from windlass.tui.terminal import parse_keys, render
from windlass.tui.top_rows import MARKS, job_rows, node_rows, queue_rows
from windlass.tui.top_screen import draw, sparkline
from windlass.tui.top_state import TopState

ADA = Holder("vision", "research", "ada", "Job vision/train")
BOB = Holder("speech", "product", "bob", "Job speech/asr")
H100 = "NVIDIA-H100-80GB-HBM3"
DUMP = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: gpu-1, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3, nvidia.com/gpu.count: "8"}}
  status:
    capacity: {cpu: "64", memory: 1Ti, pods: "110", nvidia.com/gpu: "8"}
    allocatable: {cpu: "64", memory: 1Ti, pods: "110", nvidia.com/gpu: "8"}
    conditions: [{type: Ready, status: "True"}]
- apiVersion: v1
  kind: Pod
  metadata: {name: train, namespace: vision, creationTimestamp: "2026-01-01T10:00:00Z"}
  spec:
    nodeName: gpu-1
    schedulerName: windlass
    containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: "5"}}}]
  status: {phase: Running, startTime: "2026-01-01T10:00:00Z"}
"""


def made() -> Ledger:
    """Two nodes of four GPUs: three compute, one idles, one spins, two are free, one is unhealthy; a job waits."""
    gpus = [
        *(("gpu-9", index, "computing", ADA) for index in range(3)),
        ("gpu-9", 3, "held_idle", ADA),
        ("gpu-10", 0, "spinning", BOB),
        ("gpu-10", 1, "free", None),
        ("gpu-10", 2, "free", None),
        ("gpu-10", 3, "unhealthy", None),
    ]
    shares = tuple(
        GpuShare(node, index, H100, state, 1000, holder, "vision/train-0" if holder else "")
        for node, index, state, holder in gpus
    )
    waiting = WaitingWork(
        "speech/big", msgspec.structs.replace(BOB, job="Job speech/big"), "GPU_FULL", 8000, START - 7200
    )
    return Ledger(START, shares, Demand((waiting,)), 0, {"research": 4000, "product": 2000})


@pytest.fixture
def state() -> TopState:
    found = TopState()
    found.look(made())
    return found


def lines(state: TopState, width: int = 80, height: int = 24) -> list[str]:
    drawn = ["".join(text for text, _ in line) for line in draw(state, width, height)]
    assert len(drawn) == height
    assert max(map(len, drawn)) <= width
    return drawn


def press(state: TopState, *keys: str) -> list[str]:
    for key in keys:
        state.press(key)
    return lines(state)


def test_the_fleet_at_80_columns(state: TopState) -> None:
    drawn = lines(state)
    assert drawn[0].startswith("windlass top  8 GPUs on 2 nodes  00:00:00")
    assert drawn[0].endswith(" 1 fleet  2 queues  3 jobs ")
    assert drawn[1] == "█" * 30 + "s" * 10 + "i" * 10 + "·" * 20 + "x" * 10
    assert drawn[2].startswith("█ computing 3  s spinning 1  i held, idle 1  · free 2  x unhealthy 1")
    assert drawn[3].startswith("8 GPUs wait for GPUs that are in use")
    assert drawn[4].split() == ["NODE", "GPUS", "MODEL", "HELD", "BUSY", "IDLE", "USE"]
    assert drawn[5].split() == ["gpu-9", "███i", "H100-80GB-HBM3", "4", "3", "1", "▇"]
    assert drawn[6].split() == ["gpu-10", "s··x", "H100-80GB-HBM3", "1", "1", "0", "█"]
    assert drawn[-1].startswith("2 fleet, by name")


def test_queues_have_quota_and_what_waits(state: TopState) -> None:
    drawn = press(state, "2")
    assert drawn[5].split() == ["research", "4", "4", "3", "1", "0", "█"]
    assert drawn[6].split() == ["product", "1", "2", "1", "0", "8", "2h", "█"]


def test_from_a_queue_to_its_jobs_to_a_jobs_gpus_and_back(state: TopState) -> None:
    drawn = press(state, "2", "down", "enter")
    assert [line.split()[:2] for line in drawn[5:7]] == [["Job", "speech/asr"], ["Job", "speech/big"]]
    assert drawn[6].rstrip().endswith("GPU_FULL")
    assert drawn[-1].startswith("2 jobs of product")
    drawn = press(state, "enter")
    assert drawn[5].split()[:4] == ["gpu-10:0", "H100-80GB-HBM3", "1", "s"]
    assert press(state, "escape")[-1].startswith("2 jobs of product")
    assert press(state, "escape")[-1].startswith("2 queues")
    assert press(state, "escape")[-1].startswith("2 queues"), "no further back than that"


def test_from_a_node_to_the_jobs_on_it(state: TopState) -> None:
    drawn = press(state, "enter")
    assert drawn[-1].startswith("1 jobs of gpu-9")
    assert "vision/train" in drawn[5]


def test_a_filter_finds_by_user_and_is_left_with_escape(state: TopState) -> None:
    drawn = press(state, "3", "/", *"bob")
    assert drawn[-1].startswith("filter: bob")
    assert press(state, "enter")[-1].startswith("2 jobs, by held; filter “bob”")
    assert press(state, "/", *"nobody", "enter")[5] == "nothing matches"
    press(state, "/", "backspace")
    assert state.place.filter == "bobnobod"
    assert press(state, "escape")[-1].startswith("3 jobs")


def test_escape_takes_the_filter_off_before_it_goes_back(state: TopState) -> None:
    press(state, "2", "down", "enter", "/", *"big", "enter")
    assert press(state, "escape")[-1].startswith("2 jobs of product, by held   ")
    assert press(state, "escape")[-1].startswith("2 queues")


def test_letters_of_a_filter_are_no_commands(state: TopState) -> None:
    press(state, "/", "q", "1")
    assert (state.is_over, state.place.filter) == (False, "q1")


def test_sorting_by_every_column_and_the_other_way_round(state: TopState) -> None:
    def names() -> list[str]:
        return [row.name for row in state.rows()]

    assert names() == ["gpu-9", "gpu-10"], "9 comes before 10"
    press(state, "S")
    assert names() == ["gpu-10", "gpu-9"]
    press(state, "S", "s", "s", "s")
    assert names() == ["gpu-9", "gpu-10"], "the least use first: three of four before one of one"


def test_many_rows_scroll_and_the_chosen_one_is_always_seen(state: TopState) -> None:
    shares = tuple(GpuShare(f"n-{n}", 0, H100, "free", 1000) for n in range(500))
    state.look(Ledger(START, shares))
    assert press(state, "end")[-2].startswith("n-499 ")
    assert press(state, "up")[-3].startswith("n-498 ")
    drawn = press(state, "home")
    assert drawn[5].startswith("n-0 ")
    chosen = [text for line in draw(state, 80, 24) for text, style in line if style == "chosen"]
    assert chosen[-1].startswith("n-0 ")
    state.press("page-down", page=18)
    assert any(line.startswith("n-18 ") for line in lines(state))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (250, 60), (20, 3), (1, 1)])
@pytest.mark.parametrize("view", ["1", "2", "3"])
def test_it_fits_whatever_the_terminal_is(state: TopState, width: int, height: int, view: str) -> None:
    state.press(view)
    lines(state, width, height)
    state.press("?")
    lines(state, width, height)


def test_names_are_cut_and_never_break_the_screen(state: TopState) -> None:
    evil = "a\x1b[2Jb" + "c" * 200
    share = GpuShare(evil, 0, H100, "free", 1000)
    state.look(Ledger(START, (share,)))
    drawn = render(draw(state, 80, 24), {})
    assert "\x1b[2J" not in drawn
    assert "…" in drawn


def test_every_state_has_a_mark_of_its_own() -> None:
    assert set(MARKS) == set(STATES)
    assert len(set(MARKS.values())) == len(STATES)


def test_colours_can_be_switched_off() -> None:
    line = [[("x", "unhealthy"), ("y", "chosen")]]
    assert "\x1b[31m" in render(line, {})
    assert render(line, {"NO_COLOR": "1"}) == "x\x1b[7my\x1b[0m\x1b[K"


def test_numbers_are_the_ledgers() -> None:
    ledger = made()
    for rows in (queue_rows(ledger), job_rows(ledger)):
        assert sum(row.held for row in rows) == 5000
        assert sum(row.waiting for row in rows) == 8000
    assert sum(sum(row.states.values()) for row in node_rows(ledger)) == ledger.total_milli


def test_sparklines_have_gaps_where_nothing_was_measured() -> None:
    assert sparkline([0.0, None, 1.0], 5, 1.0) == "  ▁ █"
    assert sparkline([1, 2, 4], 2) == "▅█"
    assert sparkline([], 3) == "   "


def test_use_over_looks_becomes_a_line(state: TopState) -> None:
    idle = [msgspec.structs.replace(share, state="held_idle") for share in made().shares if share.holder is not None]
    state.look(Ledger(START + 10, tuple(idle)))
    assert state.line("fleet", "gpu-9") == [0.75, 0.0]
    assert state.line("", "busy") == [0.8, 0.0]
    state.look(Ledger(START + 20, ()))
    assert state.line("fleet", "gpu-9") == [], "what is gone is forgotten"


def test_keys_as_terminals_send_them() -> None:
    sent = "\x1b[A\x1bOBj\x1b[5~\r\x7f\x1b/\x03"
    assert parse_keys(sent) == ["up", "down", "j", "page-up", "enter", "backspace", "escape", "/", "ctrl-c"]


def test_an_error_is_said_and_what_was_seen_stays(state: TopState) -> None:
    state.note = "the cluster does not answer"
    assert "the cluster does not answer" in lines(state, 250)[-1]
    assert "gpu-9" in lines(state)[5]
    empty = TopState()
    assert lines(empty)[0] == "reading the cluster …"


def test_in_a_pipe_it_is_a_table(tmp_path: Path) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text(DUMP)
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, "top", "--from", str(dump), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    heading, row = done.stdout.splitlines()
    assert heading.split() == ["JOB", "GPUS", "COMPUTING", "SPINNING", "IDLE", "UNMEASURED", "WAITING"]
    assert row.split() == ["Pod", "vision/train", "5", "0", "0", "0", "5", "0"]
    document = subprocess.run([*command, "-o", "json"], capture_output=True, check=True).stdout
    assert msgspec.json.decode(document)["rows"] == [{"name": "Pod vision/train", "unmeasured": 5.0}]


class Screen:
    """`windlass top` on a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [str(Path(sys.executable).with_name("windlass")), "top", *arguments]
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.text = ""

    def until(self, wanted: str, seconds: float = 60) -> list[str]:
        """The lines of the first frame that has it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            frame = self.text.rpartition("\x1b[H")[2]
            if wanted in frame:
                return [re.sub(r"\x1b\[[0-9]*[mK]", "", line) for line in frame.split("\r\n")]
            if select.select([self._ours], [], [], 1.0)[0]:
                try:
                    self.text += os.read(self._ours, 65_536).decode("utf-8", "replace")
                except OSError:
                    break
        raise AssertionError(f"{wanted!r} did not come: {self.text[-2000:]!r}")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_in_a_terminal(tmp_path: Path) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text(DUMP)
    screen = Screen("--from", str(dump), "--interval", "600")
    try:
        first = screen.until("gpu-1")
        assert len(first) == 24
        assert max(map(len, first)) <= 80 + len("\x1b[J")
        assert "?????···" in first[5]
        screen.press("3")
        assert any("vision/train" in line for line in screen.until("Pod vision/train"))
        screen.press("\r")
        screen.until("gpu-1:0")
        screen.press("q")
        assert screen.process.wait(30) == 0
        screen.until("\x1b[?1049l", 10)
    finally:
        screen.close()
