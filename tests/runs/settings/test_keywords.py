"""proximo/runs/settings/keywords.py and keywords_envs.py against the configurations, from which tools/keywords.py writes them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from proximo.catalog import VARIANTS
from proximo.facts import facts_of_all
from proximo.runs.settings.keywords import Changes, Fields, PresetFields, SweepFields, TrainArguments

SPEC = importlib.util.spec_from_file_location("keywords_tool", Path("tools/keywords.py"))
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


def test_the_files_are_what_the_tool_writes():
    """If this fails, a field of a configuration has changed: run python tools/keywords.py."""
    assert {path: path.read_text() for path in tool.texts()} == tool.texts()


def test_every_field_that_may_be_given_is_a_keyword_argument():
    known = {*facts_of_all(variant.config for variant in VARIANTS.values())} - {"iteration_shift"}
    assert Fields.__annotations__.keys() == known == SweepFields.__annotations__.keys()
    assert TrainArguments.__annotations__.keys() == known | {"set_up"}
    assert Changes.__annotations__.keys() == known | {"allow_import", "set_up"}
    assert PresetFields.__annotations__.keys() == known - {"env_id"}
    assert not Fields.__required_keys__


def test_training_does_not_import_them():
    program = "import sys, proximo, proximo.runs.settings.arguments, proximo.runs.start; assert 'proximo.runs.settings.keywords' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
