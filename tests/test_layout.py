"""The layout itself: who imports whom, what may stand at the top of a file, names, and the mirrored folders."""

import ast
from pathlib import Path

import pytest

ROOT = Path("proximo")
FILES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
MATHEMATICS = ("gae", "loss", "networks", "distributions")
WIRED = ("proximo.catalog", "proximo.cli.main")  # besides recipes, the only ones that know recipes and suites by name
COMMANDS = ("check_env", "rate")  # test an environment of the user's; play a game of several players


def ours(name):
    """Modules of ours that a file imports, at the top and inside functions, but not in its main guard."""
    parts = [node for node in TREES[name].body if not (isinstance(node, ast.If) and "__name__" in ast.dump(node.test))]
    return {node.module for part in parts for node in ast.walk(part)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "proximo"}


def top_imports(name):
    """Modules of ours imported when the file is (not inside functions, not for type checkers)."""
    return {node.module for node in TREES[name].body
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "proximo"}


def libraries(name):
    nodes = [node for node in ast.walk(TREES[name]) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {part.split(".")[0] for node in nodes
            for part in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])}


def inside(name, folder):
    return name.startswith(f"proximo.{folder}")


def suites():
    """Every file of envs/ that makes environments of a named kind."""
    return {name for name in FILES if inside(name, "envs.")
            and any(isinstance(node, ast.FunctionDef) and node.name.startswith("make_") for node in TREES[name].body)}


def test_config_and_variants_stand_alone():
    assert ours("proximo.facts") == set() and ours("proximo.config") == {"proximo.facts"}
    assert ours("proximo.variants") <= {"proximo.config", "proximo.errors", "proximo.facts"}
    assert ours("proximo.errors") == ours("proximo.streams") == set()


@pytest.mark.parametrize("name", [name for name in FILES if inside(name, "envs.")])
def test_suites_know_nothing_of_learning(name):
    """envs/* may import each other, the configuration, streams and errors: no array library's agents, no loop."""
    allowed = ("proximo.envs", "proximo.config", "proximo.variants", "proximo.errors", "proximo.streams")
    assert all(module.startswith(allowed) for module in ours(name))
    assert "torch" not in libraries(name) or name == "proximo.envs.brax"  # hands its arrays over on the device


@pytest.mark.parametrize("framework", ["on_torch", "on_jax"])
@pytest.mark.parametrize("part", MATHEMATICS)
def test_the_mathematics_imports_no_part_of_ours(framework, part):
    """Only the array library (and the configuration's type, which the loss is handed)."""
    assert ours(f"proximo.{framework}.{part}") <= {"proximo.config"}


@pytest.mark.parametrize("name", [name for name in FILES if inside(name, "on_")])
def test_frameworks_never_meet(name):
    on_torch = inside(name, "on_torch")
    assert not any(inside(module, "on_jax" if on_torch else "on_torch") for module in ours(name))
    assert not libraries(name) & ({"jax", "flax", "optax"} if on_torch else {"torch"})


@pytest.mark.parametrize("name", [name for name in FILES if inside(name, "on_torch.") and ".recipes" not in name])
def test_the_core_names_no_suite_and_no_recipe(name):
    bad = [module for module in ours(name) if ".recipes" in module or module in suites() or module in WIRED]
    assert bad == [] and "proximo.runs.run" not in ours(name) and "proximo.runs.log" not in ours(name)


@pytest.mark.parametrize("name", [name for name in FILES if not inside(name, "envs.") and ".recipes" not in name])
def test_only_the_wiring_imports_recipes_and_suites(name):
    recipes = {module for module in ours(name) if ".recipes" in module}
    named = ours(name) & suites()
    assert not recipes or name in WIRED
    assert not named or name in WIRED or name.removeprefix("proximo.") in COMMANDS or inside(name, "on_jax")


def test_loop_learner_and_rollout_import_downwards():
    """train -> rollout, learner -> loss, gae: none of those imports what stands above it."""
    order = ["networks", "distributions", "agent", "rollout", "optimizer", "learner", "setup", "train"]
    for i, part in enumerate(order):
        above = {f"proximo.on_torch.{other}" for other in order[i + 1:]}
        assert not ours(f"proximo.on_torch.{part}") & above, part


@pytest.mark.parametrize("name", FILES)
def test_our_imports_are_plain(name):
    """`from proximo.x import name` only: no alias, star, relative import, nor `import proximo`."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, node.lineno
            if (node.module or "").split(".")[0] == "proximo":
                assert all(alias.asname is None and alias.name != "*" for alias in node.names), node.lineno
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "proximo" for alias in node.names), node.lineno


def plain_statement(node):
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    test = ast.dump(node.test) if isinstance(node, ast.If) else ""
    return "__name__" in test or "TYPE_CHECKING" in test


@pytest.mark.parametrize("name", FILES)
def test_nothing_runs_at_import(name):
    assert [node.lineno for node in TREES[name].body if not plain_statement(node)] == []


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_looked_up_in_the_dark(name):
    """No __file__, inspect, importlib lookups of our own, pickle, or global random state."""
    words = {node.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)}
    assert not words & {"__file__", "globals", "eval", "exec"}
    assert not libraries(name) & {"inspect", "pickle", "cloudpickle", "dill", "random"}
    calls = {ast.unparse(node.func) for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)}
    assert not calls & {"torch.load", "torch.save", "np.load"}
    assert "np.random.seed" not in calls or name == "proximo.bench.statistics"  # rliable's, put back as it was


def test_no_cycles_among_imports():
    edges = {name: {m for m in top_imports(name) if m in FILES} for name in FILES}
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name):], name])
        if name not in done:
            path.append(name)
            for module in sorted(edges[name]):
                visit(module)
            path.pop()
            done.add(name)

    for name in FILES:
        visit(name)


def public_names(name):
    found = set()
    for node in TREES[name].body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {one for one in found if not one.startswith("_")}


def closure(name):
    """All files that a recipe uses, itself included."""
    found, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in FILES and module not in found:
            found.add(module)
            waiting += ours(module)
    return found


@pytest.mark.parametrize("recipe", [name for name in FILES if ".recipes." in name])
def test_public_names_are_unique_among_files_used_together(recipe):
    """So that a recipe and all it uses can be written as one file."""
    owners = {}
    for module in sorted(closure(recipe)):
        for one in public_names(module):
            owners.setdefault(one, []).append(module)
    assert {one: modules for one, modules in owners.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("name", FILES)
def test_files_open_with_a_sentence_and_stay_short(name):
    text = FILES[name].read_text()
    if text.strip():
        assert (ast.get_docstring(TREES[name]) or "").strip(), "no opening sentence"
        assert len(text.splitlines()) <= 310
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 70, f"{node.name} is {node.end_lineno - node.lineno} lines long"


def test_folders_of_the_frameworks_mirror_each_other():
    """The mathematics has the same public names in both."""
    for part in ("gae", "loss"):
        torch_names, jax_names = (public_names(f"proximo.{folder}.{part}") for folder in ("on_torch", "on_jax"))
        assert {one for one in torch_names if one.islower()} == {one for one in jax_names if one.islower()}, part
