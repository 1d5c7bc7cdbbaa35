"""The layout: which file may import which, sizes, names, and what may stand at the top of a file."""

import ast
from pathlib import Path

import pytest

ROOT = Path("proximo")
FILES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
FOLDERS = {"bench", "cli", "envs", "models", "on_jax", "on_torch", "runs"}
MATHEMATICS = ("gae", "loss", "networks", "distributions")
RECORDS = {"proximo.config", "proximo.types", "proximo.protocols"}
SUITES = ("atari", "brax", "envpool", "envpool_xla", "gym", "jax_control", "mujoco", "pettingzoo", "procgen")
NAMES_SUITES = ("proximo.catalog", "proximo.runs.settings.choice", "proximo.runs.check.env", "proximo.models.export.eject.torch_setup",
                "proximo.models.export.eject.jax_main", "proximo.models.rate")  # may import a suite by its name


def ours(name):
    """Return the modules of Proximo that a file imports, at its top and inside functions, but not for its types only."""
    found = set()
    of_types = {part for node in ast.walk(TREES[name]) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
                for statement in node.body for part in ast.walk(statement)}
    for node in {*ast.walk(TREES[name])} - of_types:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "proximo":
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & FILES.keys()
            found |= submodules or {node.module}
    return found - {"proximo"}


def libraries(name):
    nodes = [node for node in ast.walk(TREES[name]) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {part.split(".")[0] for node in nodes
            for part in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])}


def inside(name, folder):
    return name.startswith(f"proximo.{folder}.")


def functions(name):
    return [node for node in ast.walk(TREES[name]) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def for_each(names):
    """Check every name in one test: as tests of their own, 1,500 would take longer to report than to run."""
    def decorate(check):
        def test():
            problems = {}
            for name in names:
                try:
                    check(name)
                except AssertionError as problem:
                    problems[name] = str(problem)
            assert problems == {}

        test.__doc__ = check.__doc__
        return test

    return decorate


def test_the_package_is_read_on_one_screen():
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"} == FOLDERS
    assert len(list(ROOT.glob("*.py"))) <= 15


def test_folders_are_read_on_one_screen():
    modules = {folder: len([*folder.glob("*.py")]) - 1 for folder in ROOT.rglob("*") if folder.is_dir()}
    assert {folder: count for folder, count in modules.items() if count > 40} == {}


def test_no_cycles_among_imports():
    """Imports inside functions count too."""
    edges = {name: ours(name) & FILES.keys() for name in FILES}
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


@for_each(FILES)
def test_sizes(name):
    """Files of at most 250 lines, functions of at most 45, public functions with at most 7 parameters."""
    text = FILES[name].read_text()
    if text.strip():
        assert (ast.get_docstring(TREES[name]) or "").strip(), "no opening sentence"
    assert len(text.splitlines()) <= 250
    for node in functions(name):
        assert node.end_lineno - node.lineno < 45, f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        every = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        every = every[1:] if every[:1] in (["self"], ["cls"]) else every
        if node.name == "__init__" or not node.name.startswith("_"):
            assert len(every) <= 7, f"{node.name} has {len(every)} parameters"


def test_config_and_variants_stand_alone():
    assert ours("proximo.errors") == ours("proximo.streams") == set()
    assert ours("proximo.config") | ours("proximo.variants") | ours("proximo.facts") <= {
        "proximo.config", "proximo.facts", "proximo.errors"}


@for_each([name for name in FILES if inside(name, "envs")])
def test_environments_know_nothing_of_learning(name):
    """Files of envs/ may import each other and the contracts: no agents, no loop, no run."""
    allowed = ("proximo.envs", "proximo.config", "proximo.facts", "proximo.variants", "proximo.errors", "proximo.streams",
               "proximo.protocols", "proximo.types")
    assert all(module.startswith(allowed) for module in ours(name))
    hands_over = ("proximo.envs.normalize", "proximo.envs.arrays.torch_arrays")  # arrays of JAX, and tensors of environments
    assert "torch" not in libraries(name) or name in hands_over


@pytest.mark.parametrize("framework", ["on_torch", "on_jax"])
@pytest.mark.parametrize("part", MATHEMATICS)
def test_the_mathematics_imports_only_records(framework, part):
    assert ours(f"proximo.{framework}.{part}") <= RECORDS | {"proximo.on_jax.parameters"}  # of flax modules


@for_each([name for name in FILES if name.startswith("proximo.on_")])
def test_frameworks_never_meet(name):
    on_torch = name.startswith("proximo.on_torch")
    assert not any(inside(module, "on_jax" if on_torch else "on_torch") for module in ours(name))
    assert not libraries(name) & ({"jax", "flax", "optax"} if on_torch else {"torch"})


@for_each([name for name in FILES if name.startswith("proximo.on_")])
def test_the_core_names_no_suite_and_writes_no_file(name):
    suites = {f"proximo.envs.{suite}" for suite in SUITES}
    assert not {module for module in ours(name) if module in suites or module.startswith(
        ("proximo.catalog", "proximo.cli", "proximo.runs", "proximo.bench", "proximo.variants"))}


@for_each([name for name in FILES if not inside(name, "envs")])
def test_suites_are_named_in_few_places(name):
    suites = {f"proximo.envs.{suite}" for suite in SUITES} - {"proximo.envs.gym"}
    assert name in NAMES_SUITES or not ours(name) & suites


@for_each([name for name in FILES if not inside(name, "cli") and name != "proximo.__main__"])
def test_the_library_does_not_call_its_commands(name):
    assert not {module for module in ours(name) if module.startswith("proximo.cli")}


@pytest.mark.parametrize("framework", ["on_torch", "on_jax"])
def test_loop_learner_and_rollout_import_downwards(framework):
    """train -> setup -> learner -> rollout -> agent: none of those imports what comes before it here."""
    order = [name for name in ("networks", "distributions", "agent", "assemble", "rollout", "learner", "setup", "train")
             if f"proximo.{framework}.{name}" in FILES]
    for i, part in enumerate(order):
        above = {f"proximo.{framework}.{other}" for other in order[i + 1:]}
        assert not ours(f"proximo.{framework}.{part}") & above, part


@for_each(FILES)
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
        return isinstance(node.value, ast.Constant) or ast.unparse(node) == \
            "logging.getLogger('proximo').addHandler(logging.NullHandler())"
    test = ast.dump(node.test) if isinstance(node, ast.If) else ""
    return "__name__" in test or "TYPE_CHECKING" in test


REGISTERS = "proximo.envs.no_velocity"  # its import registers ids, which is what Gymnasium's `module:id` expects


@for_each(FILES)
def test_annotations_need_no_newer_gymnasium(name):
    """Before 1.4, of Gymnasium's classes only Space, Env and Wrapper take parameters such as [Any]: others are quoted."""
    ours_of = {alias.asname or alias.name for node in ast.walk(TREES[name]) if isinstance(node, ast.ImportFrom)
               and (node.module or "").split(".")[0] == "gymnasium" for alias in node.names}
    evaluated = [annotation for function in functions(name) for annotation in (
        function.returns, *(argument.annotation for argument in [*function.args.posonlyargs, *function.args.args,
                                                                 *function.args.kwonlyargs]))
                 if annotation is not None]
    taken = {ast.unparse(node.value) for annotation in evaluated for node in ast.walk(annotation)
             if isinstance(node, ast.Subscript)}
    found = {one for one in taken if one.split(".")[0] in ours_of | {"gym", "gymnasium"}}
    assert {one for one in found if one.split(".")[-1] not in ("Space", "Env", "Wrapper")} == set()


@for_each([name for name in FILES if name != REGISTERS])
def test_nothing_runs_at_import(name):
    assert [node.lineno for node in TREES[name].body if not plain_statement(node)] == []


@for_each(FILES)
def test_no_pickle_and_no_global_random_state(name):
    """Nor __file__, eval or inspection of code, except for the help (strings below fields exist only in the source) and
    for eject, which rewrites the source."""
    words = {node.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)}
    assert not words & {"__file__", "globals", "eval", "exec"}
    assert not libraries(name) & {"pickle", "cloudpickle", "dill", "random"}
    assert "inspect" not in libraries(name) or name == "proximo.cli.train_help" or name.startswith("proximo.models.export.eject")
    calls = {ast.unparse(node.func) for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)}
    assert not calls & {"torch.load", "torch.save", "np.load", "dist.all_gather_object"}
    assert "np.random.seed" not in calls or name == "proximo.bench.statistics"  # rliable's, restored afterwards


WRITE_OTHERWISE = {
    "proximo.runs.folder.checkpoint", "proximo.models.export.shared",  # folders that appear completely or not at all
    "proximo.runs.folder.csv_file", "proximo.runs.logs.events", "proximo.bench.places.child", "proximo.runs.folder.lock",  # files that grow, and locks
    "proximo.runs.folder.writing", "proximo.runs.logs.output", "proximo.bench.report.pictures",  # itself, /dev/null, pictures in memory
    "proximo.models.export.eject.main_program"}  # a template


@for_each([name for name in FILES if name not in WRITE_OTHERWISE])
def test_files_are_written_whole(name):
    """A module that writes a file uses whole_file: a full disk leaves the older file, nothing else, and one sentence."""
    calls = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    names = {ast.unparse(node.func).rpartition(".")[2]: node for node in calls}
    modes = [arg.value for node in calls if ast.unparse(node.func).rpartition(".")[2] == "open"
             for arg in (*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode"))
             if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    writes = names.keys() & {"write_text", "write_bytes", "savefig", "copyfile", "copyfileobj", "savez"} or any(
        set(mode) & set("wax+") and set(mode) <= set("rwaxbt+") for mode in modes)
    assert not writes or "whole_file" in {alias.name for node in ast.walk(TREES[name]) if isinstance(node, ast.ImportFrom)
                                          for alias in node.names}


def public_names(name):
    found = set()
    for node in TREES[name].body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {one for one in found if not one.startswith("_")}


def closure(roots):
    """Return all files that some files use, themselves included."""
    found, waiting = set(), list(roots)
    while waiting:
        module = waiting.pop()
        if module in FILES and module not in found:
            found.add(module)
            waiting += ours(module)
    return found


@pytest.mark.parametrize("framework", ["on_torch", "on_jax"])
def test_public_names_are_unique_among_files_used_together(framework):
    """The loop, its set-up, the agents and every suite of one framework have no public name twice."""
    owners = {}
    for module in closure({f"proximo.{framework}.train", f"proximo.{framework}.assemble"}
                          | {f"proximo.envs.{suite}" for suite in SUITES}):
        for one in public_names(module):
            owners.setdefault(one, []).append(module)
    assert {one: modules for one, modules in owners.items() if len(modules) > 1} == {}


def test_the_frameworks_mirror_each_other():
    """The mathematics has the same public functions in both."""
    for part in ("gae", "loss"):
        torch_names, jax_names = (public_names(f"proximo.{folder}.{part}") for folder in ("on_torch", "on_jax"))
        assert {one for one in torch_names if one.islower()} == {one for one in jax_names if one.islower()}, part


def test_tests_mirror_the_tree():
    """Every folder of tests has the name of a folder of proximo/, or is one of those for tests of several files."""
    folders = {path.name for path in Path("tests").iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders <= FOLDERS | {"examples", "faults", "fixtures", "frameworks", "support"}
