"""The steps of partial evaluation one by one, on programs of a few lines."""

import importlib
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from proximo.catalog import VARIANTS
from proximo.models.export.eject import main_program
from proximo.models.export.eject.calls import Named, find_calls
from proximo.models.export.eject.comments import tidy_comments
from proximo.models.export.eject.definition import Definition, apply_all
from proximo.models.export.eject.jax_rewrites import jax_rewrites
from proximo.models.export.eject.known import Facts
from proximo.models.export.eject.library import Library, definition_text, module_names
from proximo.models.export.eject.passes.annotations import present_edits
from proximo.models.export.eject.passes.attributes import alias_attribute, write_only_attribute
from proximo.models.export.eject.passes.branches import statement_edits
from proximo.models.export.eject.passes.polish import polish_edits
from proximo.models.export.eject.rewrites import (
    CHECKED_CONFIG,
    EVERY_ROW_VALID,
    GAMES_OF_POOL,
    NUMPY_SUITES,
    OPEN_LOSS,
    SELF_PLAY,
    merged,
    rewritten,
)
from proximo.models.export.eject.specialise import Specialiser
from proximo.models.export.eject.values import Knowledge, Scope
from proximo.on_torch.agent import SharedAgent

MODULES = ("proximo.types", "proximo.envs.atari", "proximo.envs.episodes", "proximo.envs.gym_loop", "proximo.envs.envpool",
           "proximo.envs.envpool_ids", "proximo.envs.pettingzoo", *(f"proximo.on_torch.{name}" for name in (
               "distributions", "learner", "loss", "noise", "rollout", "setup", "train", "value_norm")))
JAX_MODULES = ("proximo.types", "proximo.envs.episodes", "proximo.envs.jax_control",
               *(f"proximo.on_jax.{name}" for name in ("agent", "distributions", "learner", "loss", "rollout", "train_step")))
NO_FACTS = Facts(**{name: {} for name in Facts._fields})
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
    every, found = merged(NUMPY_SUITES, GAMES_OF_POOL, SELF_PLAY, CHECKED_CONFIG, OPEN_LOSS, EVERY_ROW_VALID), set()
    for module in map(importlib.import_module, MODULES):
        for name in every.keys() & {*module_names(module.__name__)}:
            text = rewritten(every, name, definition_text(module.__name__, name))
            compile(text, name, "exec")
            found.add(name)
    assert found == {*every}


def test_every_rewrite_for_jax_fits_the_text_of_the_library():
    pytest.importorskip("jax")
    every, found = jax_rewrites(VARIANTS["ppo"].config(framework="jax")), set()
    for module in JAX_MODULES:
        for name in every.keys() & {*module_names(module)}:
            compile(rewritten(every, name, definition_text(module, name)), name, "exec")
            found.add(name)
    assert found == {*every}


def test_attributes_with_two_names_or_without_readers_are_left_out():
    library = Library()
    library.add(definition := Definition("Counter", main_program, COUNTER))
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
    record = Definition("R", main_program, "class R(NamedTuple):\n    a: Tensor | None  # (N,), None where nothing ends\n"
                                         "    b: Tensor | None  # (N,). None: always a")
    record.apply(present_edits(record, frozenset("ab")))
    assert record.text == "class R(NamedTuple):\n    a: Tensor  # (N,)\n    b: Tensor  # (N,)"


@pytest.mark.parametrize("constant", ["None", "True", "1.5", "'text'", "()"])
def test_a_constant_that_stands_alone_is_left_out(constant):
    """It remains of `self.x = None` where nothing reads x. A docstring stays."""
    one = Definition("f", main_program, f'def f():\n    """Return one."""\n    {constant}\n    return 1')
    one.apply(statement_edits(SimpleNamespace(definition=one), dict(one.functions())["f"].body, guards=False))
    assert one.text == 'def f():\n    """Return one."""\n    return 1'


def test_a_method_that_is_passed_on_is_also_called_elsewhere():
    """Its parameters must stay, although some of its calls are known."""
    library, agent = Library(), SharedAgent(None, None, None)
    library.find("proximo.on_torch.agent", "SharedAgent")
    one = Definition("make", main_program, "def make(agent):\n    return Policy(agent.act(1), agent.value, agent.value(1))")
    scope = Scope(Knowledge(library, NO_FACTS._replace(named={"agent": agent}), {}, {}, {}), one, "make", dict(one.functions())["make"])
    calls, other = find_calls([scope], Named({}, frozenset()))
    assert calls.keys() == {"SharedAgent.act", "SharedAgent.value"}
    assert other == {"SharedAgent.value"}


def test_a_method_with_the_name_of_a_field_keeps_its_parameters():
    """`x.whole(...)` may call Storage.whole or the function in Parts.whole, so that no call of Storage.whole is the last one."""
    library = Library()
    library.add(Definition("Parts", main_program, "class Parts(NamedTuple):\n    whole: Callable[[int], int]\n    size: int"))
    library.add(one := Definition("read", main_program, "def read(x):\n    return x.whole(1)"))
    scope = Scope(Knowledge(library, NO_FACTS, {}, {}, {}), one, "read", dict(one.functions())["read"])
    assert library.callable_fields() == {"whole"}
    methods = {"whole": ["Storage.whole"]}
    assert find_calls([scope], Named(methods, frozenset())) == ({"Storage.whole": [ANY]}, set())
    assert find_calls([scope], Named(methods, library.callable_fields())) == ({}, {"Storage.whole"})
    library.add(one := Definition("read", main_program, "def read(x: Parts):\n    return x.whole(1)"))
    scope = Scope(Knowledge(library, NO_FACTS, {}, {}, {}), one, "read", dict(one.functions())["read"])
    assert find_calls([scope], Named(methods, library.callable_fields())) == ({}, set())


@pytest.mark.parametrize(("body", "last"), [
    ("    env = make(n)\n    env = Wrap(env, n)\n    return env", "    env = make(n)\n    return Wrap(env, n)"),
    ("    env = make(n)\n    later(lambda: env)\n    env = Wrap(env, n)\n    return env", None)])
def test_what_is_stored_only_to_be_returned(body, last):
    """A name that a function inside reads is kept: it is called later."""
    one = Definition("f", main_program, f"def f(n):\n{body}")
    scope = Scope(Knowledge(Library(), NO_FACTS, {}, {}, {}), one, "f", dict(one.functions())["f"])
    one.apply(polish_edits(scope, dict(one.functions())["f"]))
    assert one.text.rstrip() == f"def f(n):\n{last or body}"


def test_an_heir_keeps_its_forward_and_what_it_reads_of_its_base():
    library = Library()
    library.add(base := Definition("Base", main_program, """class Base(nn.Module):
    def __init__(self, low):
        self.low = low

    @property
    def bounds(self):
        return self.low, read()

    @property
    def middle(self):
        return self.low / 2"""))
    for name in ("First", "Second"):
        library.add(Definition(name, main_program, f"""class {name}(Base):
    def forward(self, x):
        return x, self.bounds

    def spare(self):
        return read()"""))
    library.add(Definition("main", main_program, """def main():
    print(First(read())(1), Second(read())(2))"""))
    Specialiser(library, NO_FACTS._replace(dropped_calls=set()), "main").specialise()
    assert "bounds" in base.text
    assert "middle" not in base.text
    assert "def forward" in library.definitions["First"].text
    assert "spare" not in library.definitions["First"].text
