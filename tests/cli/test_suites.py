"""The table behind `proximo list`."""

from proximo.cli.suites import LINUX, SUITES, Suite, listing, missing

VARIANTS = ("ppo", "ppo_atari", "ppo_continuous_action", "rpo_continuous_action", "ppo_atari_lstm", "ppo_atari_envpool",
            "ppo_atari_envpool_xla_jax", "ppo_atari_envpool_xla_jax_scan", "ppo_procgen", "ppo_atari_multigpu",
            "ppo_pettingzoo_ma_atari", "ppo_continuous_action_isaacgym", "compact")


def test_every_variant_of_the_seeds_has_a_suite():
    """Against the seeds' names."""
    assert set(VARIANTS) <= {variant for suite in SUITES for variant in suite.variants}


def test_what_is_missing_is_named_with_its_command(monkeypatch):
    """A module that exists and one that cannot."""
    suite = Suite("made up", "made_up", ("json", "no_such_module"), ("ppo",), ("X-v0",), ("Linux x86-64",))
    assert missing(suite.packages) == ["no_such_module"]
    monkeypatch.setattr("proximo.cli.suites.SUITES", (suite,))
    assert 'made up: not installed (no no_such_module): pip install "proximo[made_up]"' in listing()


def test_the_listing_shows_every_suite():
    """Names and example ids are what a user looks for."""
    text = listing()
    assert all(suite.name in text and suite.examples[0] in text for suite in SUITES)


def test_the_listing_says_where_it_was_run():
    """One platform only, for which every suite has wheels; the README sends readers to this list."""
    assert all(LINUX in suite.platforms for suite in SUITES) and f"only {LINUX} was tested" in listing()
    assert all("wheels for" in line for line in listing().splitlines() if LINUX in line and "tested" not in line)
