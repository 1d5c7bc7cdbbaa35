"""The table behind `proximo list`."""

import re
from pathlib import Path

from proximo.cli.suites import LINUX, LINUX_ARM, MAC, SUITES, WINDOWS, Suite, installed, listing, missing

README = Path("README.md")

VARIANTS = ("ppo", "ppo_atari", "ppo_continuous_action", "rpo_continuous_action", "ppo_atari_lstm", "ppo_atari_envpool",
            "ppo_atari_envpool_xla_jax", "ppo_atari_envpool_xla_jax_scan", "ppo_procgen", "ppo_atari_multigpu",
            "ppo_pettingzoo_ma_atari", "ppo_continuous_action_isaacgym", "compact")


def test_every_variant_of_the_seeds_has_a_suite():
    """Against the seeds' names."""
    assert set(VARIANTS) <= {variant for suite in SUITES for variant in suite.variants}


def test_what_is_missing_is_named_with_its_command(monkeypatch):
    """A module that exists and one that cannot."""
    suite = Suite("made up", "made_up", ("json", "no_such_module"), ("ppo",), ("X-v0",), ("Linux x86-64",))
    assert not installed(suite) and installed(suite._replace(packages=("json",)))
    assert missing(suite.packages) == ["no_such_module"]
    monkeypatch.setattr("proximo.cli.suites.SUITES", (suite,))
    assert 'made up: not installed (no no_such_module): pip install "proximo[made_up]"' in listing()


def test_the_listing_shows_every_suite():
    """Names and example ids are what a user looks for."""
    text = listing()
    assert all(suite.name in text and suite.examples[0] in text for suite in SUITES)


def test_the_readme_names_what_each_platform_lacks():
    """Against the same table that `proximo list` prints."""
    text = " ".join(README.read_text().split())
    for platform in (MAC, WINDOWS, LINUX_ARM):
        sentence = re.search(f"{platform} lacks ([^;.]*)[;.]", text)[1].replace("that", "EnvPool inside JAX")
        lacking = {suite.name for suite in SUITES if platform not in suite.platforms}
        assert lacking and set(re.split(", | and ", sentence)) == lacking
    assert all(LINUX in suite.platforms for suite in SUITES) and f"nothing was run but on {LINUX}" in listing()
