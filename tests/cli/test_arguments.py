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
    ("live run --port x", "--port x is not allowed. Use a whole number."),
    ("tune file --workers abc", "--workers abc is not allowed. Use a whole number."),
    ("bench file --seeds 1.5", "--seeds 1.5 is not allowed. Use a whole number."),
    ("pbt file --job-gpus half", "--job-gpus half is not allowed. Use a number."),
    ("tune file --moon 3 --outt x", "Unrecognized options: --moon, 3, --outt, x."),
    ("watch run --pick mean",
     "invalid choice 'mean' for argument '--pick'. Expected one of ('all', 'best', 'worst')."),
    ("bench file --workers", "Missing value for argument '--workers'. Expected 1 values."),
    ("eval --pisodes 3 run", "Unrecognized options: --pisodes, 3, run. Did you mean --episodes?"),
    ("compare --moon 1 old new", "Unrecognized options: --moon, 1, old, new."),
    ("pull --moon a b", "Unrecognized options: --moon, a, b."),
    ("bench --framework jax file", "Write `proximo bench FILE` before other flags: bench needs a benchmark file, or --status DIR."),
    ("tune --compile file", "Write `proximo tune FILE` before other flags: tune needs a search file."),
    ("card run --best-of 3", "Unrecognized options: --best-of, 3. Did you mean --best?"),
])
def test_a_mistake_is_one_sentence(words, said, encoding, monkeypatch, capsys):
    """tyro prints a box of several lines."""
    stderr = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stderr", stderr)
    name = words.split()[0]
    assert main(words.split()) == 2
    stderr.flush()
    printed = stderr.buffer.getvalue().decode(encoding).replace("('--workers',)", "--workers")  # as early tyro 1 names it
    assert printed == f"proximo: {said} `proximo {name} --help` explains it.\n" and not capsys.readouterr().out


FILE_HAS = "takes the settings of its runs from its file."


@pytest.mark.parametrize("words, lines", [
    ("tune file --compile", [f"--compile: tune {FILE_HAS} Write this line into [overrides]: compile = true"]),
    ("tune file --framework jax", [f"--framework jax: tune {FILE_HAS} Write this line into [overrides]: framework = \"jax\""]),
    ("pbt file --no-norm-reward --hidden-sizes 64 32", [
        f"--no-norm-reward: pbt {FILE_HAS} Write this line into [overrides]: norm_reward = false",
        f"--hidden-sizes 64 32: pbt {FILE_HAS} Write this line into [overrides]: hidden_sizes = [64, 32]"]),
    ("tune file --lr=1e-3 --gamma x", [
        f"--lr=1e-3: tune {FILE_HAS} Write this line into [overrides]: learning_rate = 0.001",
        f"--gamma x: tune {FILE_HAS} Write this line into [overrides]: gamma = ..."]),
    ("tune file --target-kl none", [f"--target-kl none: tune {FILE_HAS} Leave target_kl out of [overrides]: a TOML file has no none."]),
    ("tune file --seeds 3 --pruner=none", [f"--seeds 3: tune {FILE_HAS} There, it is the key seeds.",
                                           f"--pruner=none: tune {FILE_HAS} There, it is the key pruner."]),
    ("pbt file --population 3", [f"--population 3: pbt {FILE_HAS} There, it is the key population."]),
    ("tune file --seed 3", [f"--seed 3: tune {FILE_HAS} There, the key seeds sets seed."]),
    ("tune file --compile --qqqqq", [f"--compile: tune {FILE_HAS} Write this line into [overrides]: compile = true",
                                    "Unrecognized options: --qqqqq. `proximo tune --help` explains it."])])
def test_a_flag_of_train_is_a_line_of_the_file(words, lines, capsys):
    """The options were said to be unknown."""
    assert main(words.split()) == 2
    assert capsys.readouterr().err == "".join(f"proximo: {line}\n" for line in lines)
