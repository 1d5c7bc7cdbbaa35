"""The command profile: its words, its table, its picture, and its advice for given shares."""

import json

import pytest

from proximo.catalog import config_class
from proximo.cli.main import main
from proximo.cli.profile_advice import COLORS, Machine, advice, draw
from proximo.runs.settings.resolve import resolve
from proximo.runs.shares import Shares

SMALL = ["--num-envs", "2", "--num-steps", "16", "--num-minibatches", "2", "--hidden-sizes", "8"]
PLAIN = Machine(cores=4, cuda=False, jax_task=False, envpool=False)


def test_environments_are_measured_and_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "ppo", "CartPole-v1", "Acrobot-v1", "--iterations", "2", "--json", "p.json", *SMALL]) == 0
    said = capsys.readouterr().out
    assert "CartPole-v1 (ppo, torch): " in said and "Acrobot-v1 (ppo, torch): " in said and said.endswith("profile.png\n")
    assert all(f"\n  {part} " in said for part in ("environment", "acting", "learning", "logging", "checkpoints"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "profile.png"]
    assert (tmp_path / "profile.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "p.json").read_text())["CartPole-v1"]["steps"] == 32


@pytest.mark.parametrize("words,said", [
    (["ppo", "--iterations", "0"], "--iterations 0 must be a whole number of at least 1"),
    (["ppo", "--num-minibatches", "3", "--env-id", "Nothing-v0"], "batch_size=512 is not divisible by num_minibatches=3"),
    (["Nothing-v0"], "Nothing"), (["ppo", "--num-seeds", "2", "--framework", "jax"], "Leave --num-seeds out"),
    (["CartPole-v1", "--env=Acrobot-v1"], "CartPole-v1 and --env were both given. Name every environment before the flags."),
    (["ppoo"], "Did you mean ppo?"), (["ppo", "--iterations", "²"], "--iterations ² must be a whole number"),
    (["ppo", "--init-from", "nothing"], "nothing cannot be used"),
    (["ppo", "--speed", "9"], "--speed"), (["ppo", "--out", "p.foo"], "p.foo does not end in a format of pictures")])
def test_words_that_cannot_work(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *words]) == 2 and said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_is_named_twice_is_measured_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "ppo", "CartPole-v1", "CartPole-v1", "--iterations", "1", *SMALL]) == 0
    assert capsys.readouterr().out.count("steps per second") == 1


def test_a_picture_of_no_format_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr("proximo.cli.profile_command.profile_one", lambda *given: pytest.fail("it was measured"))
    assert main(["profile", "ppo", "--out", "p.foo"]) == 2 and "p.foo does not end in" in capsys.readouterr().err


def test_it_explains_itself(capsys):
    assert main(["profile", "--help"]) == 0
    assert "usage: proximo profile [VARIANT]" in capsys.readouterr().out


def lines(machine=PLAIN, variant="ppo", fields=(), **seconds):
    shares = Shares({part.replace("_", " "): one for part, one in seconds.items()}, 512, 1.0, 0.0)
    return " ".join(advice(shares, resolve(config_class(variant)(**dict(fields)), variant, 1, 1), machine))


@pytest.mark.parametrize("found,wanted,unwanted", [
    (lines(environment=9.0, learning=1.0), ["10.0 times as fast", "--env-workers 4"], ["--compile", "jax", "envpool"]),
    (lines(environment=0.05, learning=0.01), ["0.098 ms, too little for worker processes"], ["--env-workers 4"]),
    (lines(PLAIN._replace(jax_task=True, envpool=True), environment=9.0, learning=1.0), ["--framework jax", "--engine envpool"], []),
    (lines(environment=1.0, learning=9.0), ["Learning: 90% of the time", "--compile", "--update-epochs than 4"], ["--threads", "cuda"]),
    (lines(fields={"compile": True}, environment=1.0, acting=9.0), ["--num-envs 16 --num-steps 32"], ["--compile"]),
    (lines(PLAIN._replace(cuda=True), "ppo_atari", {"device": "cpu", "threads": 1}, environment=1.0, learning=9.0),
     ["--threads 4", "--device cuda"], ["--compile"]),
    (lines(environment=1.0, acting=1.0, learning=1.0, checkpoints=1.0), ["Checkpoints: 25% of the time. --checkpoint-every 500 writes fewer"], []),
    (lines(compiled_iteration=1.0), ["one compiled function", "--num-seeds"], ["--compile "]),
    (lines(environment=1.0, acting=1.0, evaluation=1.0, learning=1.0), ["No part dominates"], ["times as fast"])], ids=range(9))
def test_advice_follows_from_the_shares(found, wanted, unwanted):
    assert all(word in found for word in wanted) and not [word for word in unwanted if word in found]


def test_the_numbers_on_the_bars_can_be_read(tmp_path, monkeypatch):
    """Contrast of at least 3:1 (WCAG 2) with the colour of their part."""
    from matplotlib.colors import to_rgb

    def luminance(color):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))

    figures = []
    monkeypatch.setattr("proximo.cli.profile_advice.save_figure", lambda figure, out: figures.append(figure))
    draw({"E": Shares(dict.fromkeys(COLORS, 1.0), 1, 1.0, 1.0)}, tmp_path / "profile.png")
    texts = figures[0].axes[0].texts
    assert len(texts) == len(COLORS)
    for text, color in zip(texts, COLORS.values()):
        low, high = sorted((luminance(text.get_color()), luminance(color)))
        assert (high + 0.05) / (low + 0.05) >= 3
