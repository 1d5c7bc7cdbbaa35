"""Files of a stranger: runs, models, checkpoints, benchmark files, searches and logs whose content somebody has chosen.

Every row ends with exit code 5 (a file of a run) or 2 (a file that the user names, or no run at all) and a sentence that
names the file; or, where an older checkpoint or the rest of a log is whole, with a warning and without loss.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proximo
from proximo.bench.jobs import jobs_of
from proximo.bench.sets import load_set
from proximo.bench.tune.search import load_search
from proximo.catalog import config_class
from proximo.errors import FilesError, ProximoError, UsageError
from proximo.runs.folder.checkpoint import checkpoints, newest_checkpoint
from proximo.runs.folder.files import MOST_FAULTS, type_errors, type_faults
from proximo.runs.folder.run import read_config
from proximo.runs.settings.resolve import problems_of
from tests.support.faults import check_end, end_of, examples
from tests.support.hostile import BROKEN, JSON, REMOVED, copied, edit, places, reseal
from tests.support.runs import same_weights, train

pytestmark = pytest.mark.area("Files of strangers")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of ten iterations, with checkpoints after 9 and 10."""
    folder = tmp_path_factory.mktemp("faults") / "run"
    assert train(folder, "--norm-obs") == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return copied(trained, tmp_path / "run")


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("command", ["resume", "plot", "eval"])
def test_config_json_that_is_no_record(command, fault, run, capsys, tmp_path):
    BROKEN[fault](run / "config.json")
    words = {"eval": ["--episodes", "1"], "plot": ["--out", tmp_path / "out.png"]}.get(command, [])
    end = end_of(capsys, command, run, *words)
    if command == "eval" and end.code == 0:
        assert fault in ("missing", "a link to nothing", "a folder", "a pipe", "/dev/zero", "a link to itself")  # model/
    elif fault in ("missing", "a link to nothing"):
        check_end(end, 2, str(run))
    elif command == "plot" and fault in ("a pipe", "a folder", "/dev/zero", "a link to itself"):
        check_end(end, end.code, "config.json")
        assert end.code in (2, 5)
    else:
        check_end(end, 5, "config.json")


WRONG_VALUES = [("total_timesteps", "abc"), ("num_envs", "4"), ("gamma", None), ("learning_rate", "1"), ("env_workers", "2"),
                ("num_minibatches", True), ("env_id", 5), ("hidden_sizes", [1.5]), ("hidden_sizes", 8), ("env_kwargs", "x"),
                ("seed", 1.5), ("seed", [1]), ("logger", "evil"), ("norm_obs", "yes"), ("device_ids", {}), ("gamma", [0.9]),
                ("anneal_lr", {}), ("anneal_lr", [[]]), ("num_envs", 10**30), ("num_steps", -1), ("learning_rate", 1e400)]


@pytest.mark.parametrize("name,value", WRONG_VALUES)
def test_config_json_with_a_value_of_another_type(name, value, run, capsys):
    """Wrong types are the file's fault; values of the right type that are impossible are refused as a command's are."""
    edit(run / "config.json", ("config", name), value)
    end = end_of(capsys, "resume", run, "--total-timesteps", "640")
    check_end(end, end.code, name)
    assert end.code == 5 or (end.code == 2 and isinstance(value, (int, float)))


@pytest.mark.parametrize("place,value,part", [
    ((), [], "a table of names and values"), (("variant",), REMOVED, "variant is missing"), (("variant",), 5, "variant=5"),
    (("config",), [], "config=[]"), (("config",), REMOVED, "config is missing"), (("processes",), "x", "processes='x'"),
    (("resume_with",), {}, "resume_with={}"), (("versions",), [1], "versions=[1]")])
def test_config_json_without_its_parts(place, value, part, run, capsys):
    edit(run / "config.json", place, value)
    check_end(end_of(capsys, "resume", run), 5, part)


MODEL = [(("env_id",), 5, None), (("config",), [], "config=[]"), (("config", "env_id"), 5, "env_id=5"),
         (("config", "hidden_sizes"), 1.5, "hidden_sizes=1.5"), (("obs_shape",), "x", "obs_shape='x'"),
         (("obs_shape",), 5, "obs_shape=5"), (("obs_shape",), [-4], "shape [-4]"), (("obs_shape",), [10**12], "numbers"),
         (("obs_shape",), [4, 10**300], "numbers"), (("obs_dtype",), "O", "obs_dtype='O'"), (("obs_dtype",), "V8", "obs_dtype"),
         (("action_space",), 0, "action_space=0"), (("action_space",), {}, "type is missing"),
         (("action_space", "type"), "Graph", "type='Graph'"), (("action_space", "n"), 10**12, "numbers"),
         (("action_space", "n"), 0, "shape [0]"), (("action_space", "n"), -1, "shape [-1]"), (("action_space", "n"), 2.5, "n=2.5"),
         (("action_space", "n"), REMOVED, "n is missing"), (("action_space", "start"), "x", "start='x'"),
         (("action_space",), {"type": "Box", "low": 0, "high": 1, "shape": [10**7, 10**7], "dtype": "float32"}, "numbers"),
         (("action_space",), {"type": "Box", "low": [0], "high": 1, "shape": [3, 2], "dtype": "int8"}, "another network"),
         (("action_space",), {"type": "Box", "low": [0, 1], "high": 1, "shape": [3], "dtype": "int8"}, "impossible"),
         (("action_space",), {"type": "MultiDiscrete", "nvec": ["a"], "start": [0]}, "impossible"),
         (("action_space",), {"type": "MultiDiscrete", "nvec": [10**12], "start": [0]}, "numbers"),
         (("action_space",), {"type": "Dict", "parts": [["a"]]}, "impossible"),
         (("action_space",), {"type": "Tuple", "parts": [5]}, "parts 1=5"),
         (("observation_space",), 0, "observation_space=0"), (("variant",), "pppo", "pppo is not a variant"),
         (("weights",), [], "weights=[]"), (("weights",), {}, "another network"), (("weights", "more"), [1], "weights.more"),
         (("weights", "more"), {"__array__": "none"}, "has no"), (("weights", "more"), {"__array__": 5}, "__array__=5"),
         (("obs_moments",), {}, "mean is missing"), (("obs_moments", "mean"), 1, "mean=1"),
         (("config", "hidden_sizes"), [10**6, 10**6], "10"), (("config", "num_envs"), 10**9, None)]


@pytest.mark.parametrize("place,value,part", MODEL)
def test_models(place, value, part, run, capsys):
    edit(run / "model" / "tree.json", place, value)
    reseal(run / "model")
    end = end_of(capsys, "eval", run / "model", "--episodes", "1")
    if part is None:
        check_end(end, 0)
    elif end.code == 2:
        check_end(end, 2, part)
        assert place in (("variant",), ("config", "hidden_sizes"))
    else:
        check_end(end, 5, part)


def slow(name, fault):
    """Hashing 2 GB takes long."""
    return pytest.mark.faults if (name, fault) == ("tensors.safetensors", "2 GB") else ()


BROKEN_TREES = [pytest.param(name, fault, marks=slow(name, fault)) for fault in BROKEN
                for name in ("manifest.json", "tree.json", "tensors.safetensors")]


@pytest.mark.parametrize("name,fault", BROKEN_TREES)
def test_files_of_a_model_that_are_none(name, fault, run, capsys):
    BROKEN[fault](run / "model" / name)
    if name != "manifest.json" and fault not in ("a pipe", "/dev/zero", "a folder", "a link to itself", "a link to nothing",
                                                 "missing", "2 GB"):
        reseal(run / "model")
    check_end(end_of(capsys, "eval", run, "--episodes", "1"), 5, "model")


MANIFESTS = {"no sums": {"format": 1, "sha256": {}}, "one sum": {"format": 1, "sha256": {"tree.json": "0"}},
             "no format": {"sha256": {"tree.json": "0", "tensors.safetensors": "0"}}, "a list": [],
             "sums of numbers": {"format": 1, "sha256": {"tree.json": 0, "tensors.safetensors": 0}}}


@pytest.mark.parametrize("content", MANIFESTS.values(), ids=MANIFESTS)
def test_manifests(content, run, capsys):
    (run / "model" / "manifest.json").write_text(json.dumps(content))
    check_end(end_of(capsys, "eval", run, "--episodes", "1"), 5, "manifest.json")


@pytest.mark.parametrize("number", [0, 2, 99, "1", 1.5, None])
def test_a_format_that_this_version_does_not_know(number, run, capsys):
    edit(run / "model" / "manifest.json", ("format",), number)
    check_end(end_of(capsys, "eval", run, "--episodes", "1"), 5, "format=")


@pytest.mark.parametrize("name", ["/dev/zero", "../../../etc/passwd", "extra.bin"])
def test_a_manifest_that_names_other_files(name, run, capsys):
    """They are not read: the model is as good as without them."""
    edit(run / "model" / "manifest.json", ("sha256", name), "0")
    check_end(end_of(capsys, "eval", run, "--episodes", "1"), 0)


CHECKPOINT = [((), {}), ((), []), (("state",), 5), (("state", "adam"), REMOVED), (("state", "adam"), []),
              (("state", "iteration"), "x"), (("state", "iteration"), None), (("state", "steps"), 1.5), (("log",), []),
              (("log", "metrics_bytes"), "x"), (("log", "last_returns"), ["x"]), (("log", "clock"), 3), (("versions",), [1]),
              (("fixed",), 7), (("state", "statistics"), 3)]


def check_falls_back(run, cases=lambda: None):
    older = int(checkpoints(run)[-2].name)
    cases()
    assert newest_checkpoint(run)["state"]["iteration"] == older


@pytest.mark.parametrize("place,value", CHECKPOINT)
def test_a_checkpoint_without_its_parts_is_skipped(place, value, run):
    newest = checkpoints(run)[-1]
    edit(newest / "tree.json", place, value)
    reseal(newest)
    check_falls_back(run)


@pytest.mark.parametrize("name,fault", BROKEN_TREES)
def test_a_checkpoint_with_a_broken_file_is_skipped(name, fault, run):
    BROKEN[fault](checkpoints(run)[-1] / name)
    check_falls_back(run)


@pytest.mark.parametrize("fault", ["lists in lists", "a pipe", "2 GB"])
def test_a_run_whose_newest_checkpoint_is_broken_ends_as_before(fault, run, trained, capsys):
    """With the same weights, bit for bit."""
    BROKEN[fault](checkpoints(run)[-1] / "tree.json")
    shutil.rmtree(run / "model")
    check_end(end_of(capsys, "resume", run), 0, "The checkpoint before it is used.")
    assert same_weights(run, trained)


@pytest.mark.parametrize("fault", ["lists in lists", "empty", "/dev/zero"])
def test_a_run_without_a_whole_checkpoint_is_left_alone(fault, run, capsys):
    for folder in checkpoints(run):
        BROKEN[fault](folder / "tree.json")
    before = sorted(run.rglob("*"))
    check_end(end_of(capsys, "resume", run), 5, "All 2 checkpoints")
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.faults)])
@pytest.mark.parametrize("place,value", [(("state", "carry"), REMOVED), (("state", "carry"), {}), (("state", "envs"), {}),
                                         (("state", "envs"), 5), (("state", "statistics"), {}), (("state", "envs"), [])])
def test_a_checkpoint_whose_state_does_not_fit(place, value, framework, tmp_path, capsys):
    """What only the environments and the framework can check: one sentence, and the files stay."""
    assert train(tmp_path, "--norm-obs", "--framework", framework, "--total-timesteps", "96") == 0
    newest = checkpoints(tmp_path)[-1]
    edit(newest / "tree.json", place, value)
    reseal(newest)
    end = end_of(capsys, "resume", tmp_path, "--total-timesteps", "128")
    if (framework, value) == ("jax", {}) and place[-1] == "carry":  # as if it came from other devices
        check_end(end, 0, "They are made again.")
    elif (framework, place[-1], value) == ("jax", "envs", {}):  # as if it came from other environments
        check_end(end, 2, "The checkpoint's environments have no state.parts")
    else:
        check_end(end, 5, "The checkpoint does not fit this run")


BYTES = {"random": np.random.default_rng(0).bytes(5000), "NULs": b"\0" * 5000, "one line": b"1," * 5000, "quotes": b'"' * 5000,
         "wild numbers": b"step,row,return,length,seconds\n1e999,0,nan,inf,1\n-1e300,0,1e300,1,1\n", "empty": b"",
         "no UTF-8": b"step,row,return,length,seconds\n\xff\xfe,0,1,1,1\n5,0,1,1,1\n"}


@pytest.mark.parametrize("name", ["episodes.csv", "metrics.csv"])
@pytest.mark.parametrize("fault", BYTES)
def test_logs_of_other_bytes(name, fault, run, capsys, tmp_path):
    (run / name).write_bytes(BYTES[fault])
    check_end(end_of(capsys, "plot", run, "--out", tmp_path / "out.png"), 0)


@pytest.mark.parametrize("fault", BYTES)
def test_a_run_goes_on_although_its_logs_have_other_bytes(fault, run, capsys):
    """Lines that are missing are said."""
    for name in ("episodes.csv", "metrics.csv"):
        (run / name).write_bytes(BYTES[fault])
    check_end(end_of(capsys, "resume", run, "--total-timesteps", "352"), 0)


ROW = 'variant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 1000\n'
SETS = {"label=5": f"[[run]]\n{ROW}label = 5", "processes='x'": f'[[run]]\n{ROW}processes = "x"',
        "processes=-3": f"[[run]]\n{ROW}processes = -3", "processes=100000": f"[[run]]\n{ROW}processes = 100000",
        "variant=['ppo']": '[[run]]\nvariant = ["ppo"]', "overrides=5": f"[[run]]\n{ROW}overrides = 5",
        "overrides='x'": f'overrides = "x"\n[[run]]\n{ROW}', "run 1=5": "run = [5]", "run=5": "run = 5",
        "seeds=300000000": f"seeds = 300000000\n[[run]]\n{ROW}", "seeds=": f"seeds = []\n[[run]]\n{ROW}",
        "seeds=datetime": f"seeds = 1979-05-27\n[[run]]\n{ROW}", "title=5": f"title = 5\n[[run]]\n{ROW}",
        "evaluate='yes'": f'evaluate = "yes"\n[[run]]\n{ROW}', "env_ids=": "[[run]]\nvariant = 'ppo'\nsteps = 1\nenv_ids = 'x'",
        "steps=1.5": "[[run]]\nvariant = 'ppo'\nsteps = 1.5\nenv_ids = ['x']", "presets=5": "[[run]]\npresets = 5",
        "there is no [[run]]": "", "is not TOML": "[[run]", "learning_rate=": f"[[run]]\n{ROW}overrides = {{learning_rate = 'a'}}",
        "num_envs=": f"[[run]]\n{ROW}overrides = {{num_envs = {10**15}}}"}


@pytest.mark.parametrize("part", SETS)
def test_benchmark_files(part, tmp_path, capsys):
    (tmp_path / "a.toml").write_text(SETS[part])
    check_end(end_of(capsys, "bench", tmp_path / "a.toml", "--out", tmp_path / "out"), 2, part)
    assert not (tmp_path / "out").exists()


SEARCH = f"{ROW}[space]\ngamma = {{low = 0.9, high = 0.99}}\n"
SEARCHES = {"trials='x'": f'trials = "x"\n{SEARCH}', "trials=0": f"trials = 0\n{SEARCH}", "space=5": f"space = 5\n{ROW}",
            "space: gamma=5": f"{ROW}[space]\ngamma = 5", "space: gamma: low='a'": f"{ROW}[space]\ngamma = {{low = 'a', high = 'b'}}",
            "pruner=5": f"pruner = 5\n{SEARCH}", "storage=5": f"storage = 5\n{SEARCH}", "metric='x'": f"metric = 'x'\n{SEARCH}",
            "target_scores=5": f"target_scores = 5\n{SEARCH}", "there is no [space]": ROW, "sampler_seed='x'": f"sampler_seed = 'x'\n{SEARCH}"}


@pytest.mark.parametrize("part", SEARCHES)
def test_search_files(part, tmp_path, capsys):
    pytest.importorskip("optuna")
    (tmp_path / "a.toml").write_text(SEARCHES[part])
    check_end(end_of(capsys, "tune", tmp_path / "a.toml", "--out", tmp_path / "out"), 2, part)


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("command", ["bench", "tune", "pbt"])
def test_benchmark_files_that_are_none(command, fault, tmp_path, capsys):
    pytest.importorskip("optuna")
    path = tmp_path / "a.toml"
    path.write_text(SEARCH)
    BROKEN[fault](path)
    check_end(end_of(capsys, command, path, "--out", tmp_path / "out"), 2, "a.toml")


def check_sentences(error):
    assert str(error)
    assert all(len(line) < 1000 for line in str(error).splitlines())


def write_edited(folder, text, place, value):
    """Write tree.json of a model with another value in one place, and the digests that fit it."""
    (folder / "tree.json").write_text(text)
    if place or value is not REMOVED:
        edit(folder / "tree.json", place, value)
    reseal(folder)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")  # of torch, for layers without units
def test_any_value_in_a_model(trained, tmp_path, cases):
    """It is refused, or it acts."""
    folder = copied(trained / "model", tmp_path / "model")
    text = (folder / "tree.json").read_text()
    everywhere = places(json.loads(text))

    @examples(60, 4000)
    @given(place=st.sampled_from(everywhere), value=st.one_of(st.just(REMOVED), JSON))
    def tried(place, value):
        cases()
        write_edited(folder, text, place, value)
        try:
            model = proximo.load(folder)
            model.act(np.zeros(model.spec.obs_shape, model.spec.obs_dtype), deterministic=True)
        except ProximoError as error:
            check_sentences(error)

    tried()


def test_any_value_in_a_model_with_which_a_run_begins(trained, tmp_path, cases):
    """It is refused, or one iteration is trained."""
    folder = copied(trained / "model", tmp_path / "model")
    text = (folder / "tree.json").read_text()
    everywhere = places(json.loads(text))
    cfg = read_config(trained, config_class).cfg

    @examples(30, 1000)
    @given(place=st.sampled_from(everywhere), value=st.one_of(st.just(REMOVED), JSON))
    def tried(place, value):
        cases()
        write_edited(folder, text, place, value)
        try:
            next(proximo.iterations(replace(cfg, init_from=str(folder)))).weights()
        except ProximoError as error:
            check_sentences(error)

    tried()


def test_any_value_in_a_config(trained, tmp_path, cases):
    run = tmp_path / "run"
    run.mkdir()
    text = (trained / "config.json").read_text()
    everywhere = places(json.loads(text))

    @examples(60, 4000)
    @given(place=st.sampled_from(everywhere), value=st.one_of(st.just(REMOVED), JSON))
    def tried(place, value):
        cases()
        (run / "config.json").write_text(text)
        if place or value is not REMOVED:
            edit(run / "config.json", place, value)
        try:
            problems_of(read_config(run, config_class).cfg)
        except (FilesError, UsageError) as error:
            check_sentences(error)

    tried()


def test_any_value_in_a_checkpoint(trained, tmp_path, cases):
    """It is read, or the one before it is."""
    run = copied(trained, tmp_path / "run")
    newest = checkpoints(run)[-1]
    text = (newest / "tree.json").read_text()
    everywhere = places(json.loads(text), 3)

    @examples(30, 3000)
    @given(place=st.sampled_from(everywhere), value=st.one_of(st.just(REMOVED), JSON))
    def tried(place, value):
        cases()
        (newest / "tree.json").write_text(text)
        if place or value is not REMOVED:
            edit(newest / "tree.json", place, value)
        reseal(newest)
        assert newest_checkpoint(run) is not None

    tried()


@pytest.mark.parametrize("name", ["config.json", "model/tree.json", "model/manifest.json", "model/tensors.safetensors"])
def test_any_bytes_in_a_file_of_a_run(name, trained, tmp_path, cases):
    run = copied(trained, tmp_path / "run")
    whole = (run / name).read_bytes()

    @examples(20, 1500)
    @given(at=st.integers(0, len(whole)), cut=st.integers(0, 40), inserted=st.binary(max_size=20))
    def tried(at, cut, inserted):
        cases()
        (run / name).write_bytes(whole[:at] + inserted + whole[at + cut:])
        if name in ("model/tree.json", "model/tensors.safetensors"):
            reseal(run / "model")
        try:
            read_config(run, config_class)
            proximo.load(run)
        except ProximoError as error:
            check_sentences(error)

    tried()


TOML_VALUES = st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.lists(st.integers(0, 3), max_size=3),
                        st.lists(st.text(max_size=3), max_size=3), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2))


@pytest.mark.parametrize("load", [lambda path: jobs_of(load_set(path)), load_search], ids=["bench", "tune"])
def test_any_value_in_a_benchmark_file(load, tmp_path, cases):
    path = tmp_path / "a.toml"

    def literal(value):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {literal(x)}" for key, x in value.items()) + "}"
        return "[" + ", ".join(map(literal, value)) + "]" if isinstance(value, list) else json.dumps(value).replace(
            "NaN", "nan").replace("Infinity", "inf")

    keys = ("title", "seeds", "evaluate", "extra", "overrides", "variant", "env_ids", "steps", "label", "processes", "presets",
            "trials", "metric", "pruner", "storage", "sampler_seed", "space", "target_scores", "other")

    @examples(60, 4000)
    @given(tables=st.lists(st.dictionaries(st.sampled_from(keys), TOML_VALUES, max_size=4), min_size=1, max_size=3))
    def tried(tables):
        cases()
        lines = [f"[[run]]\n{ROW}" if number else "" for number in range(len(tables))]
        given_lines = ["\n".join(f"{key} = {literal(value)}" for key, value in table.items()) for table in tables]
        path.write_text("\n".join(f"{more}{head}" if not head else f"{head}{more}" for head, more in zip(lines, given_lines)),
                        encoding="utf-8", errors="replace")
        try:
            load(path)
        except UsageError as error:
            check_sentences(error)

    tried()


@pytest.mark.parametrize(("seeds", "expected"), [
    ("a", "seeds='a' is not allowed. Use a whole number or a list in square brackets."),
    ([1, "a"], "seeds 2='a' is not allowed. Use a whole number."), (3, None), ([3], None)])
def test_a_value_that_may_have_several_types(seeds, expected):
    """One sentence says all of them; of a list with a wrong part, that part."""
    assert type_faults({"seeds": seeds}, dict[str, int | list[int]]) == (
        [] if expected is None else [(("seeds", 1) if "2=" in expected else ("seeds",), expected)])


def test_very_many_wrong_values_are_counted_and_not_listed():
    """A record of each would need more memory than the machine has."""
    kind, content = dict[str, list[float]], {"returns": [[]] * (MOST_FAULTS + 1)}
    assert type_errors(content, kind) == [f"{MOST_FAULTS + 1:,} values are missing or have another type."]
    assert len(type_faults({"returns": [[]] * 3}, kind)) == 3


def test_a_benchmark_file_with_very_many_wrong_values(tmp_path, capsys):
    file = tmp_path / "b.toml"
    file.write_text(f'seeds = [1]\n[[run]]\nvariant = "ppo"\nenv_ids = [{"[]," * (MOST_FAULTS + 1)}]\nsteps = 256\n')
    check_end(end_of(capsys, "bench", file, "--out", tmp_path / "out"), 2, "values are missing or have another type")
