"""Mistakes in the words of a command are one sentence each, on terminals with and without Unicode."""

import io

import pytest

from proximo.cli.main import main


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("words, said", [
    ("eval --episodes 3", "eval needs the folder of a run: `proximo eval RUN`."),
    ("compare old", "compare needs two folders of runs: `proximo compare OLD NEW`."),
    ("eval run --pisodes 3", "Unrecognized options: --pisodes, 3. Did you mean --episodes?"),
    ("eval run other", "Unrecognized options: other."),
    ("verify run --moon", "Unrecognized options: --moon."),
    ("live run --port x", "Error parsing --port: invalid literal for int() with base 10: 'x'."),
    ("watch run --pick mean",
     "invalid choice 'mean' for argument '--pick'. Expected one of ('all', 'best', 'worst')."),
    ("bench file --workers", "Missing value for argument '--workers'. Expected 1 values."),
])
def test_a_mistake_is_one_sentence(words, said, encoding, monkeypatch, capsys):
    """tyro prints a box of several lines."""
    stderr = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stderr", stderr)
    name = words.split()[0]
    assert main(words.split()) == 2
    stderr.flush()
    printed = stderr.buffer.getvalue().decode(encoding)
    assert printed == f"proximo: {said} `proximo {name} --help` explains it.\n" and not capsys.readouterr().out
