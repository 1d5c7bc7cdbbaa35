"""Words of the command line: any words end in help, or in exit code 2 with one sentence for each mistake."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proximo.catalog import VARIANTS
from proximo.cli.flags import read_flags
from proximo.facts import facts
from proximo.problems import config_problems
from tests.support.faults import check_end, end_of, examples

pytestmark = pytest.mark.area("Words of the command line")

LONG = "x" * 300
FIELDS = sorted({name for variant in VARIANTS.values() for name in facts(variant.config)})
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUES = st.one_of(TEXT, st.integers().map(str), st.floats().map(str), st.sampled_from(
    ["", "-", "--", "nan", "inf", "-1", "1e400", "9" * 400, "None", "true", "../..", "\0", "\x1b[2J", "=", "a=b", "[", "{}"]))
FLAGS = st.builds(lambda no, name, value: [f"--{no}{name.replace('_', '-')}", *value], st.sampled_from(["", "", "no-"]),
                  st.sampled_from(FIELDS), st.lists(VALUES, max_size=3))
WORDS = st.lists(st.one_of(FLAGS, VALUES.map(lambda value: [value]), TEXT.map(lambda name: [f"--{name}"])), max_size=6)


def test_any_flags_become_a_configuration_or_sentences(cases):
    """Without what the environment would say."""
    @examples(150, 10_000)
    @given(variant=st.sampled_from(sorted(VARIANTS)), flags=WORDS)
    def tried(variant, flags):
        cases()
        kind = VARIANTS[variant].config
        values, wrong = read_flags(kind, list(chain(*flags)))
        wrong += config_problems(kind(**values))
        assert all(wrong)

    tried()


def test_any_flags_of_train_are_refused_in_sentences(capsys, cases):
    """The last flag cannot work, so nothing ever trains; the environment is made to find its problems too."""
    @examples(5, 300)
    @given(variant=st.sampled_from(["ppo", "ppo_continuous_action", "rpo_continuous_action"]), flags=WORDS)
    def tried(variant, flags):
        cases()
        end = end_of(capsys, "train", variant, *chain(*flags), "--no-such-flag")
        assert end.code == 2 or (end.code == 0 and {"--help", "-h", "--help-all"} & {*chain(*flags)}), (flags, end)

    tried()


@pytest.mark.parametrize("words", [[], ["--version"], ["--help"], ["list"], ["train", "--help"], ["resume", "--help"]])
def test_words_that_ask_for_help(words, capsys):
    check_end(end_of(capsys, *words), 0 if words else 2)
@pytest.mark.parametrize("words,part", [
    (["\0"], "is not a command"), (["\x1b[2J"], "is not a command"), (["train", "\0"], "is not a variant"),
    (["resume", "\0"], "is not a run"), (["resume", LONG], "is not a run"),
    (["eval", "\0"], "is not a run"), (["eval", LONG], "is not a run"), (["plot", "\0"], "neither is nor contains"),
    (["plot", LONG], "neither is nor contains"), (["report", "\0"], "is not a folder"),
    (["report", LONG], "is not a folder"), (["bench", "\0"], "cannot be read"), (["bench", LONG], "cannot be read"),
    (["tune", "/"], "is a folder. Name a TOML file. Files to copy are in the folder benchmarks/tune"), (["pbt", "\0"], "cannot be read"), (["compare", "/dev/null", "/dev/null"], "is not a folder")])
def test_words_that_cannot_name_a_file(words, part, capsys):
    check_end(end_of(capsys, *words), 2, part)


@pytest.mark.parametrize("name", [LONG, "\0", "/dev/null", "/proc/none"])
def test_a_run_needs_a_folder_that_can_be_made(name, capsys):
    check_end(end_of(capsys, "train", "ppo", "--run-dir", name), 5, "could not be written")
