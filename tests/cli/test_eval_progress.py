"""The bar of `proximo eval`: on a terminal only, and gone at the end."""

import io

from rich.console import Console

from proximo.cli.eval_progress import shown_progress
from proximo.models.play import HowPlayed, evaluate_model
from proximo.runs.custom_parts import NO_CUSTOM_PARTS
from tests.support.runs import train


def test_a_terminal_sees_the_episodes_that_have_ended(monkeypatch):
    monkeypatch.setattr("proximo.cli.eval_progress.REFRESH_SECONDS", 0.0)
    sent = io.StringIO()
    with shown_progress("Freeway [/b]", 100, Console(file=sent, force_terminal=True, width=100)) as show:
        show(3, 16_000)
    assert "Freeway [/b]" in sent.getvalue() and "3 of 100 episodes  step 16,000" in sent.getvalue()


def test_a_pipe_sees_nothing():
    sent = io.StringIO()
    with shown_progress("Freeway", 100, Console(file=sent)) as show:
        assert show is None
    assert sent.getvalue() == ""


def test_an_evaluation_counts_the_episodes_that_it_returns(tmp_path):
    """8 environments play one episode each, or two of which some are left out; what is shown never falls, and ends at their
    number."""
    import proximo

    train(tmp_path / "run", "--total-timesteps", "32")
    model, seen = proximo.load(tmp_path / "run"), []
    found = evaluate_model(model, NO_CUSTOM_PARTS.playing_parts("ppo", "torch"), HowPlayed(8), show=lambda *numbers: seen.append(numbers))
    assert seen == sorted(seen) and seen[0] == (0, 0) and seen[-1] == (8, 8 * max(found.lengths))
    seen.clear()
    found = evaluate_model(model, NO_CUSTOM_PARTS.playing_parts("ppo", "torch"), HowPlayed(10), show=lambda *numbers: seen.append(numbers))
    assert seen == sorted(seen) and seen[-1][0] == len(found.returns) == 10
