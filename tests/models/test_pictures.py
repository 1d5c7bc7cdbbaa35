"""Pictures as files: the settings of the user that cannot apply to them."""

import matplotlib
import numpy as np
import pytest

from proximo.bench.report.pictures import profiles_picture
from proximo.cli.profile_advice import COLORS, Shares, draw
from proximo.models.plot import plot
from proximo.models.rate import Rating, draw_ratings
from tests.support.runs import train


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_names_are_no_latex_also_where_the_settings_of_the_user_ask_for_it(ending, tmp_path):
    """LaTeX may be missing, and `_` and `%` in names are faults there."""
    train(tmp_path / "run", "--exp-name", "a_b%")
    profile = dict.fromkeys(("value", "low", "high"), np.array([1.0, 0.0]))
    with matplotlib.rc_context({"text.usetex": True}):
        assert plot([tmp_path / "run"], tmp_path / f"curve.{ending}").stat().st_size
        assert plot([tmp_path / "run"], tmp_path / f"loss.{ending}", metric="losses/value_loss").stat().st_size
        draw_ratings([Rating("a_b", 1, 25, 1, 0, 0, 0)], tmp_path / f"rating.{ending}")
        draw({"a_b": Shares(dict.fromkeys(COLORS, 1.0), 1, 1.0, 1.0)}, tmp_path / f"profile.{ending}")
        assert "a_b</text>" in profiles_picture({"a_b": profile}, np.array([0.0, 1.0]), "as they are")
