"""`poolgrad studio`: what is typed wrong is said at once, in a sentence."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from poolgrad.errors import PoolgradError
from poolgrad_studio import command


def start(*arguments):
    """The message with which the command refuses to start."""
    app = typer.Typer()
    command.register(app)
    result = CliRunner().invoke(app, [*map(str, arguments), "--no-browser", "--port", "0"])
    assert isinstance(result.exception, PoolgradError), result
    return str(result.exception)


def test_a_page_that_is_not_there_does_not_become_a_folder(tmp_path):
    assert "there is no page" in start(tmp_path / "typo.page.json")
    assert not (tmp_path / "typo.page.json").exists()


def test_a_file_that_is_no_page_is_not_opened(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"")
    assert "is not a page" in start(tmp_path / "x.npy")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be made" in start(tmp_path / "file" / "folder")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--max-seconds", "0", "max-seconds is 0"),
        ("--max-seconds", "nan", "max-seconds is nan"),
        ("--max-memory", "lots", "max-memory is 'lots'"),
        ("--engine", "abacus", "expected one of"),
        ("--key", "key.pem", "no certificate"),
        ("--certificate", "missing.pem", "there is no file missing.pem"),
    ],
)
def test_an_option_that_cannot_work_is_named(tmp_path, option, value, said):
    assert said in start(tmp_path, option, value)


def test_a_password_that_cannot_be_read_is_named(tmp_path):
    assert "cannot be read" in start(tmp_path, "--host", "0.0.0.0", "--password-file", tmp_path / "missing")
