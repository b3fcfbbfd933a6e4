"""Log lines: one JSON object each, with the trace of an error; or plain text for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from windlass.scheduler.logs import JsonFormatter, set_up_logs


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def record(level: int, message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    problem = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("windlass.x", level, "file.py", 3, message, arguments, problem)
    made.created = 1_767_225_600.25
    return made


def test_a_line_is_one_object_with_time_level_logger_and_message() -> None:
    line = JsonFormatter().format(record(logging.WARNING, 'a "%s"\nand more', "name"))
    assert "\n" not in line
    assert json.loads(line) == {
        "ts": "2026-01-01T00:00:00.250000Z",
        "level": "warning",
        "logger": "windlass.x",
        "msg": 'a "name"\nand more',
    }


def test_an_error_has_its_trace() -> None:
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        line = JsonFormatter().format(record(logging.ERROR, "failed", error=error))
    assert "ZeroDivisionError: a bug" in json.loads(line)["trace"]


@pytest.mark.parametrize("style", ["json", "text"])
def test_logs_of_the_level_and_above_go_to_stderr(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(style, "warning")
    logging.getLogger("windlass.y").info("quiet")
    logging.getLogger("windlass.y").warning("loud")
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    if style == "json":
        assert json.loads(line)["msg"] == "loud"
    else:
        assert line.endswith("WARNING loud")


def test_setting_up_again_replaces_the_first_setup(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json", "info")
    set_up_logs("text", "debug")
    logging.getLogger("windlass.y").debug("once")
    assert len(capsys.readouterr().err.splitlines()) == 1
