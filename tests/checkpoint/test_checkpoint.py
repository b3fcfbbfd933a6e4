"""The work's own module: it hears the ask through files, answers, waits, and takes SIGTERM for an ask."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from windlass import checkpoint
from windlass.model.leaving import Request, read_answers, write
from windlass.model.meta import ObjectMeta

REQUEST = Request("id-1", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "Priority", 'work of "higher" priority')


@pytest.fixture
def podinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a downward-API volume; reads are not spaced out."""
    monkeypatch.setenv("WINDLASS_ASK_FILE", str(tmp_path / "annotations"))
    monkeypatch.setenv("WINDLASS_ANSWER_FILE", str(tmp_path / "answer"))
    monkeypatch.setattr(checkpoint, "READ_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "POLL_SECONDS", 0.001)
    return tmp_path / "annotations"


def show(podinfo: Path, request: Request | None = REQUEST) -> None:
    """As the kubelet writes it: names and quoted values, sorted."""
    lines = ['a="1"', *([f"windlass.dev/ask={json.dumps(write(request))}"] if request else []), 'z="2"']
    podinfo.write_text("\n".join(lines))


def answered(podinfo: Path) -> str:
    """The time of the checkpoint, as Windlass reads the answer."""
    text = podinfo.with_name("answer").read_text()
    (found,), problem = read_answers([ObjectMeta(annotations={"windlass.dev/ask-answer": text})], REQUEST)
    assert problem == ""
    return found.checkpoint


def test_the_ask_is_read_as_windlass_writes_it(podinfo: Path) -> None:
    assert checkpoint.asked() is None
    show(podinfo)
    found = checkpoint.asked()
    assert found is not None
    assert (found.id, found.until, found.cause, found.for_whom) == (
        REQUEST.id,
        REQUEST.until,
        REQUEST.cause,
        REQUEST.for_whom,
    )
    assert found.seconds_left < 0
    show(podinfo, None)
    assert checkpoint.asked() is None


@pytest.mark.parametrize("text", ["", "windlass.dev/ask=", 'windlass.dev/ask="{"', "{}", '{"id": "x"}', "\x00"])
def test_a_file_that_is_none_is_no_ask(podinfo: Path, text: str) -> None:
    podinfo.write_text(text)
    assert checkpoint.asked() is None


def test_the_answer_is_read_by_windlass(podinfo: Path) -> None:
    show(podinfo)
    found = checkpoint.asked()
    assert found is not None
    checkpoint.answer(found, 1_767_226_000, "s3://b")
    assert answered(podinfo) == "2026-01-01T00:06:40Z"


def test_a_loop_that_is_asked_saves_answers_and_ends_with_sigterm(podinfo: Path) -> None:
    steps: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with checkpoint.leaving() as leave:
        for step in range(100):
            steps.append(step)
            if step == 3:
                show(podinfo)
            if leave.should_stop(step):
                threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
                assert not leave.answer_and_wait()
                break
    assert steps == [0, 1, 2, 3]
    assert answered(podinfo)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_withdrawn_ask_lets_the_loop_go_on(podinfo: Path) -> None:
    steps: list[int] = []
    with checkpoint.leaving() as leave:
        for step in range(6):
            steps.append(step)
            if step == 2:
                show(podinfo)
            if leave.should_stop(step):
                threading.Timer(0.01, show, (podinfo, None)).start()
                assert leave.answer_and_wait()
    assert steps == [0, 1, 2, 3, 4, 5]


def test_sigterm_alone_is_an_ask_without_an_answer(podinfo: Path) -> None:
    with checkpoint.leaving() as leave:
        assert not leave.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert leave.should_stop()
        assert not leave.answer_and_wait()
    assert not podinfo.with_name("answer").exists()


def test_all_ranks_stop_at_the_same_step(podinfo: Path) -> None:
    heard: list[bool] = []

    def any_rank(mine: bool) -> bool:
        heard.append(mine)
        return len(heard) == 2  # another rank has heard it first

    with checkpoint.leaving(agree=any_rank) as leave:
        assert [leave.should_stop(step) for step in range(2)] == [False, True]
        leave.answer()
    assert heard == [False, False]
    assert not podinfo.with_name("answer").exists(), "nothing is asked here yet"


def test_a_rank_whose_file_is_behind_waits_with_the_others(podinfo: Path) -> None:
    with checkpoint.leaving(agree=lambda mine: True) as leave:
        assert leave.should_stop()
        assert leave.ask is None
        threading.Timer(0.01, show, (podinfo,)).start()
        threading.Timer(0.1, show, (podinfo, None)).start()
        assert leave.wait(), "withdrawn, once it has seen it"
        assert leave.should_stop(), "what the ranks agree on counts"


def test_an_ask_that_this_rank_never_sees_was_withdrawn(podinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LAG_SECONDS", 0.0)
    with checkpoint.leaving() as leave:
        assert leave.wait()


def test_without_a_way_to_answer_the_checkpoint_still_counts(
    podinfo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WINDLASS_ANSWER_FILE")
    monkeypatch.setattr(checkpoint, "SERVICE_ACCOUNT", podinfo.parent / "none")
    show(podinfo)
    with checkpoint.leaving() as leave:
        assert leave.should_stop()
        show(podinfo, None)
        leave.ask = checkpoint.Ask("id-1", REQUEST.until)
        assert leave.answer_and_wait(), "it was withdrawn"
    assert "no service account" in capsys.readouterr().err


def test_the_sidecar_delivers_each_answer_once_and_tries_again(podinfo: Path) -> None:
    delivered: list[str] = []
    failures = [checkpoint.AnswerError("not now")]

    def deliver(text: str) -> None:
        if failures:
            raise failures.pop()
        delivered.append(text)

    file = podinfo.with_name("answer")
    file.write_text("one")
    checkpoint.relay(file, deliver, rounds=4)
    assert delivered == ["one"]


@pytest.mark.parametrize(
    ("arguments", "is_asked", "code"),
    [
        (["asked"], True, 0),
        (["asked"], False, 1),
        (["answer", "s3://b"], True, 0),
        (["answer"], False, 1),
        ([], True, 2),
    ],
)
def test_the_shell_way(podinfo: Path, arguments: list[str], is_asked: bool, code: int) -> None:
    show(podinfo, REQUEST if is_asked else None)
    assert checkpoint.main(arguments) == code
    assert podinfo.with_name("answer").exists() == (arguments[:1] == ["answer"] and is_asked)


def test_one_file_that_needs_nothing_else() -> None:
    assert checkpoint.__file__ is not None
    tree = ast.parse(Path(checkpoint.__file__).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)
