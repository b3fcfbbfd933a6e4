"""Formats on stdout, notes on stderr, files whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from rich.table import Table

from windlass.cli.output import atomic_output_file, check_writable, print_document, print_note, print_table
from windlass.model.errors import InputError

DOCUMENT = {
    "apiVersion": "windlass.dev/v1",
    "kind": "Thing",
    "items": [{"name": "ä", "value": 1.5, "none": None}],
}


def test_json_and_yaml_carry_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_document(DOCUMENT, "json")
    as_json = capsys.readouterr().out
    print_document(DOCUMENT, "yaml")
    as_yaml = capsys.readouterr().out
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == DOCUMENT
    assert as_yaml.startswith("apiVersion: windlass.dev/v1\nkind: Thing\n")
    assert as_json.endswith("}\n")


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("by the way")
    assert capsys.readouterr() == ("", "by the way\n")


def test_a_table_in_a_pipe_is_not_cut_and_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_column("long", header_style="bold red")
    table.add_row("x" * 200)
    print_table(table)
    printed = capsys.readouterr().out
    assert "x" * 200 in printed
    assert "\x1b" not in printed


def test_a_file_takes_its_place_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), atomic_output_file(path) as temporary:
        temporary.write_text("half" * (1 // 0))
    assert path.read_text() == "before"
    with atomic_output_file(path) as temporary:
        assert temporary.suffix == ".txt"
        temporary.write_text("whole")
        assert path.read_text() == "before"
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with atomic_output_file(tmp_path / "ours"):
        pass
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_path_that_cant_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "new.png") == tmp_path / "new.png"
    with pytest.raises(InputError, match="folder does not exist"):
        check_writable(tmp_path / "no" / "new.png")
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path)


def test_a_relative_path_is_written_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic_output_file(check_writable(Path("here.txt"))) as temporary:
        temporary.write_text("x")
    assert os.listdir(tmp_path) == ["here.txt"]
