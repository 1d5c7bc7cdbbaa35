"""The steps of partial evaluation one by one, on programs of a few lines."""

import importlib

from proximo.models.export.eject import torch_main
from proximo.models.export.eject.attributes import alias_attribute, write_only_attribute
from proximo.models.export.eject.comments import present_edits, tidy_comments
from proximo.models.export.eject.definition import Definition, apply_all
from proximo.models.export.eject.every_row_valid import REWRITES, rewritten
from proximo.models.export.eject.library import Library, definition_text, module_names

MODULES = ("proximo.types", "proximo.envs.episodes", "proximo.envs.gym_loop", "proximo.on_torch.loss", "proximo.on_torch.learner",
           "proximo.on_torch.setup")
COUNTER = """class Counter:
    def __init__(self, n):
        self._sum = np.zeros(n)
        self._total = self._sum
        self._length = np.zeros(n)  # steps

    def add(self, x):
        self._total[:] += x
        self._length += 1
        self._length[x > 0] = 0
        return self._sum.copy()"""


def test_every_rewrite_fits_the_text_of_the_library():
    found = set()
    for module in map(importlib.import_module, MODULES):
        for name in REWRITES.keys() & {*module_names(module.__name__)}:
            text = rewritten(name, definition_text(module.__name__, name))
            compile(text, name, "exec")
            found.add(name)
    assert found == {*REWRITES}


def test_attributes_with_two_names_or_without_readers_are_left_out():
    library = Library()
    library.add(definition := Definition("Counter", torch_main, COUNTER))
    assert apply_all(alias_attribute(library))
    assert "_total" not in definition.text
    assert "self._sum[:] += x" in definition.text
    assert apply_all(write_only_attribute(library))
    assert "_length" not in definition.text
    assert "return self._sum.copy()" in definition.text
    assert not write_only_attribute(library)


def test_comments_say_nothing_of_absent_things():
    text = "x = 1  # (N,) bool  False in filler rows (docs/performance.md)\ny = 2  # --compile replaces them"
    assert tidy_comments(text, "x y") == "x = 1  # (N,) bool\ny = 2"
    assert tidy_comments(text, "x y valid compile") == text.replace(" (docs/performance.md)", "")
    record = Definition("R", torch_main, "class R(NamedTuple):\n    a: Tensor | None  # (N,), None where nothing ends\n"
                                         "    b: Tensor | None  # (N,). None: always a")
    record.apply(present_edits(record, frozenset("ab")))
    assert record.text == "class R(NamedTuple):\n    a: Tensor  # (N,)\n    b: Tensor  # (N,)"
