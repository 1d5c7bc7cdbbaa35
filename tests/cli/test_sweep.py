"""`proximo sweep` against single runs with the same values, and one kill."""

import json
import shutil
from dataclasses import dataclass
from itertools import product

import gymnasium as gym
import jax
import numpy as np
import pytest

import proximo
from proximo.catalog import VARIANTS
from proximo.cli.main import main
from proximo.cli.sweep_command import TASKS, outside_problems
from proximo.cli.sweep_table import sweep_table
from proximo.errors import UsageError
from proximo.facts import setting
from proximo.on_jax.loss import ppo_loss
from proximo.runs.custom_parts import NO_CUSTOM_PARTS
from proximo.runs.run_group import member_folders
from proximo.runs.sweep import configure_sweep, members_of
from tests.support.runs import SMALL, CrashError, at_iteration, crash, same_logs, same_weights, train, weights

LISTS = {"gamma": ["0.9", "0.99"], "seed": ["2", "7"]}
GIVEN = ["--learning-rate", "1e-2", "--gamma", "0.9", "0.99", "--seeds", "2", "7", "--norm-reward", "--anneal-clip"]
NAMES = [",".join(f"{name}={value}" for name, value in zip(LISTS, values)) for values in product(*LISTS.values())]


def sweep(folder, *words):
    return main(["sweep", "ppo", *SMALL, "--run-dir", str(folder), *words])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Four members, ten iterations, never interrupted, and one compilation of an iteration for all of them."""
    folder, compiled = tmp_path_factory.mktemp("whole") / "runs", []

    def count(name, *_, fun_name="", **__):
        if name.endswith("backend_compile_duration") and "run_all" in fun_name:
            compiled.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        assert sweep(folder, *GIVEN) == 0
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert len(compiled) == 1
    return folder


def test_every_combination_is_an_ordinary_run(whole, capsys):
    folder = whole
    assert [path.name for path in member_folders(folder)] == NAMES
    for name in NAMES:
        cfg = json.loads((folder / name / "config.json").read_text())["config"]
        assert {field: str(cfg[field]) for field in LISTS} == dict(part.split("=") for part in name.split(","))
        assert cfg["learning_rate"] == 1e-2 and cfg["num_seeds"] == 1 and cfg["run_dir"].endswith(name)
        assert {"summary.json", "metrics.csv", "episodes.csv", "model", "checkpoints"} <= {
            path.name for path in (folder / name).iterdir()}
    assert main(["eval", str(folder / NAMES[0]), "--episodes", "1"]) == 0
    assert main(["eval", str(folder)]) == 2 and "contains 4 runs. Name one of them" in capsys.readouterr().err


def test_a_member_is_a_single_run_with_its_values_up_to_rounding(whole, tmp_path):
    """Gamma, an argument of the compiled function and not a constant, counts in the advantages and in the statistics of
    rewards. The member is not the first one, whose values would be right also as constants."""
    assert train(tmp_path / "run", "--framework", "jax", "--engine", "jax", "--learning-rate", "1e-2", "--gamma", "0.99",
                 "--seed", "7", "--norm-reward", "--anneal-clip", "--total-timesteps", "320") == 0
    for key, x in weights(tmp_path / "run").items():
        np.testing.assert_allclose(weights(whole / "gamma=0.99,seed=7")[key], x, atol=5e-4)
    other = weights(whole / "gamma=0.9,seed=7")
    assert max(np.abs(other[key] - x).max() for key, x in weights(tmp_path / "run").items()) > 5e-3


def test_a_killed_sweep_continues_bit_for_bit_by_the_same_command(whole, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "runs"
    with monkeypatch.context() as patched:
        at_iteration(patched, 7, crash)
        with pytest.raises(CrashError):
            sweep(folder, *GIVEN)
    assert sweep(folder, *GIVEN, "--resume", "auto") == 0
    assert "4 runs in" in (said := capsys.readouterr().err) and "after iteration 6 of 10" in said
    for name in NAMES:
        assert same_weights(whole / name, folder / name) and same_logs(whole / name, folder / name)
    again, swapped = ["sweep", "ppo", *SMALL, "--run-dir", str(folder), "--resume", "auto"], {"0.9": "0.99", "2": "7"}
    swapped |= {other: one for one, other in swapped.items()}
    other_order = [swapped.get(word, word) for word in GIVEN]  # was refused: "contains other runs"
    for words in (["resume", str(folder)], [*again, *GIVEN], [*again, *other_order]):
        assert main(words) == 0
        printed = capsys.readouterr()
        assert "all 10 iterations are done" in printed.err and printed.out.rstrip("\n") == sweep_table(folder)


def test_the_call_is_the_command(whole, tmp_path, capsys):
    """proximo.sweep finds the sweep of the command finished, so its members and configurations are the same."""
    shutil.copytree(whole, tmp_path / "runs")
    values = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "update_epochs": 2, "hidden_sizes": (8, 8), "memory_size": 8,
              "logger": "none", "checkpoint_every": 3, "total_timesteps": 320, "norm_reward": True, "anneal_clip": True,
              "learning_rate": [1e-2], "gamma": (0.9, 0.99), "seed": [2, 7]}
    assert proximo.sweep("ppo", run_dir=str(tmp_path / "runs"), resume="auto", **values) == tmp_path / "runs"
    assert "all 10 iterations are done" in capsys.readouterr().err
    with pytest.raises(UsageError, match="seed: the list is empty"):
        proximo.sweep("ppo", seed=[])
    with pytest.raises(UsageError, match="gamma='x' is not allowed"):
        proximo.sweep("ppo", gamma=[0.9, "x"])
    assert configure_sweep("ppo", None, NO_CUSTOM_PARTS, {"seed": [np.int64(3)], "hidden_sizes": [8, 8]})[2] == {"seed": [3]}
    lists = configure_sweep("ppo", None, NO_CUSTOM_PARTS, {"seed": range(1, 3), "gamma": np.array([0.5, 1.0])})[2]
    assert lists == {"seed": [1, 2], "gamma": [0.5, 1.0]}


@dataclass(frozen=True)
class WithTerm(proximo.Config):
    coef: float = setting(0.1, sweep=True)
    """Weight of a term of the loss."""


def loss_with_term(batch, cfg):
    loss, stats = ppo_loss(batch, cfg)
    return loss + cfg.coef * batch.value.sum() / batch.count, stats


def test_a_field_of_ones_own_can_be_swept(tmp_path):
    """Each member is the run with its value; 0 is the loss without the term."""
    fields = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "hidden_sizes": [8], "total_timesteps": 128, "logger": "none"}
    for given in (WithTerm, WithTerm(gamma=0.99)):
        run = proximo.sweep(given, coef=[0.0, 0.5], loss_fn=loss_with_term, run_dir=tmp_path / type(given).__name__, **fields)
        for value, loss in ((0.0, None), (0.5, loss_with_term)):
            alone = proximo.train(WithTerm, coef=value, loss_fn=loss, framework="jax", run_dir=tmp_path / f"{value}", resume="auto", **fields)
            for name, x in weights(alone).items():
                np.testing.assert_allclose(weights(run / f"coef={value}")[name], x, atol=1e-5, rtol=1e-4)
    with pytest.raises(UsageError, match="several values of num_envs. Use one value, or several of .*, coef or seed"):
        proximo.sweep(WithTerm, num_envs=[1, 2])


@pytest.mark.parametrize("env", [lambda: gym.make("CartPole-v1"), gym.Env, gym.make("CartPole-v1")])
def test_an_environment_that_is_no_id_is_refused(env, tmp_path):
    """A sweep would train the environment of the variant that has the same id."""
    with pytest.raises(UsageError, match="A sweep trains in environments that are written in JAX"):
        proximo.sweep("ppo", env, run_dir=str(tmp_path / "runs"))


def test_several_values_of_another_field_are_refused_as_by_the_command(tmp_path):
    """The sentence said that the number is none, not that a sweep cannot have several."""
    with pytest.raises(UsageError, match="a sweep cannot have several values of num_envs, model. Use one value, or several of lear"):
        proximo.sweep("ppo", num_envs=[8, 16], model=("a", "b"), hidden_sizes=(64, 64), run_dir=str(tmp_path / "runs"))


def test_what_does_not_fit_a_sweep_is_refused(whole, tmp_path, capsys):
    """All problems at once, exit code 2, and nothing is written."""
    shutil.copytree(whole, tmp_path / "runs")
    for words, sentences in (
            (["--learning-rate", "1", "x", "-3", "--num-envs", "2", "4", "--seeds", "--gama", "3", "--framework", "torch",
              "--num-seeds", "4"],
             ["--learning-rate x is not allowed", "learning_rate=-3.0 must be above 0", "--num-envs 2 4: a sweep cannot",
              "--seeds needs a value", "--gama is not a flag", "framework=torch was given", "num_seeds=4 was given"]),
            (["--seeds", "1", "1"], ["seed has a value twice: 1 1"]),
            (["--seeds", *map(str, range(300))], ["300 combinations of values were given. A sweep has at most 256"]),
            (["--env-id", "tests.support.probes:Truncated-v0", "--seeds", "1", "2"], ["is not simulated inside the compiled function"])):
        assert sweep(tmp_path / "new", *words) == 2
        said = capsys.readouterr().err
        assert all(sentence in said for sentence in sentences), said
        assert not (tmp_path / "new").exists()
    for words, sentence in ((["sweep", "ppo", *SMALL, "--run-dir", str(tmp_path / "runs"), *GIVEN], "contains a run already"),
                            (["sweep", "ppo", *SMALL, "--run-dir", str(tmp_path / "runs"), "--seeds", "1", "2",
                              "--resume", "auto"], "contains other runs"),
                            (["resume", str(tmp_path / "runs"), "--gamma", "0.5"], "gamma: the runs in")):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err
    shutil.rmtree(tmp_path / "runs" / NAMES[3])
    assert main(["resume", str(tmp_path / "runs")]) == 2 and "there is no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("variant, words, sentence", [
    ("ppo", "--env-id tests.support.probes:Truncated-v0",
     "not simulated inside the compiled function. Use an environment of ppo that is written in JAX: CartPole-v1, Acrobot-v1,"),
    ("ppo", "--engine gym", "with these settings, such as engine=gym. Use --engine jax"),
    ("ppo", "--engine envpool", "with these settings, such as engine=envpool. Use --engine jax"),
    ("ppo_atari", "--env-id ALE/Pong-v5", "and no environment of ppo_atari is. Use an environment that is written in JAX, with one of ppo,"),
    ("ppo_procgen", "", "and no environment of ppo_procgen is.")])
def test_an_environment_outside_of_jax_is_refused_before_the_run_is_announced(variant, words, sentence, tmp_path, capsys):
    """976 iterations were announced first, and engines named that the variant does not have."""
    assert main(["sweep", variant, *words.split(), "--seeds", "1", "2", "--run-dir", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert sentence in said and "iterations" not in said and "training for" not in said and "brax)" not in said


def test_several_runs_outside_of_jax_are_refused_before_they_are_announced(tmp_path, caplog, capsys):
    """Also where the environment has to be made first, which the command `sweep` need not."""
    env_id, sentence = "tests.support.probes:Truncated-v0", "is not simulated inside the compiled function"
    words = ["--framework", "jax", "--num-seeds", "2", "--run-dir", str(tmp_path / "new")]
    assert main(["train", "ppo", "--env-id", env_id, *words]) == 2 and sentence in capsys.readouterr().err
    with pytest.raises(UsageError, match=sentence):
        proximo.sweep("ppo", env=env_id, seed=[1, 2], run_dir=str(tmp_path / "new"))
    assert "iterations of" not in caplog.text and not (tmp_path / "new" / "seed-1").exists()


@pytest.mark.parametrize("variant, changes", [
    ("ppo", {}), ("ppo", {"engine": "jax"}), ("ppo_continuous_action", {"env_id": "Pendulum-v1"}),
    ("ppo_continuous_action_isaacgym", {})])
def test_environments_inside_jax_are_swept(variant, changes):
    assert outside_problems(VARIANTS[variant].config(framework="jax", **changes), variant) == []


def test_environments_of_a_file_are_checked_where_they_are_made(tmp_path):
    """A sweep of a file was refused, although make_envs of it may be written in JAX."""
    file = tmp_path / "sweep_of_a_file.py"
    file.write_text("def make_envs(cfg, seeds):\n    pass\n")
    assert outside_problems(proximo.Config(env_file=str(file), framework="jax"), "ppo") == []


@pytest.mark.parametrize("text,sentence", [
    ('{"members": [".."]}', "'..' is not the name of a folder"), ('{"members": ["/etc"]}', "'/etc' is not the name"),
    ('{"members": 5}', "members=5 is not allowed"), ("[", "is not JSON")])
def test_a_damaged_list_of_members_is_said(tmp_path, text, sentence, capsys):
    (tmp_path / "sweep.json").write_text(text)
    assert main(["resume", str(tmp_path)]) == 5
    assert sentence in capsys.readouterr().err


def test_the_next_commands_are_of_the_best_member(tmp_path, capsys):
    """A learning rate of 0 leaves the first member as it was; the second one learns."""
    folder = tmp_path / "runs"
    assert main(["sweep", "ppo", "--num-envs", "4", "--num-steps", "128", "--total-timesteps", "40960", "--framework", "jax", "--engine",
                 "jax", "--learning-rate", "1e-9", "2e-3", "--seeds", "1", "--run-dir", str(folder)]) == 0
    means = {path.name: json.loads((path / "summary.json").read_text())["episodic_return_mean"] for path in member_folders(folder)}
    best = max(means, key=means.get)
    assert best != next(iter(means)) and f"Next: proximo eval {folder / best}," in capsys.readouterr().err


def test_a_member_that_is_a_link_is_refused(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "runs")
    (tmp_path / "runs" / NAMES[0]).rename(tmp_path / "elsewhere")
    (tmp_path / "runs" / NAMES[0]).symlink_to(tmp_path / "elsewhere")
    assert main(["resume", str(tmp_path / "runs")]) == 5
    assert "is a symbolic link" in capsys.readouterr().err


def test_the_table_has_the_mean_over_seeds_best_first(tmp_path):
    members = members_of({"gamma": [0.9, 0.99], "seed": [1, 2]})
    (tmp_path / "sweep.json").write_text(json.dumps({"members": [*members]}))
    for name, score in zip(members, (1.0, 3.0, 4.0, 6.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps({"episodic_return_mean": score}))
    lines = [line.split() for line in sweep_table(tmp_path).splitlines()]
    assert lines == [["gamma", "seeds", "return", "lowest", "highest"], ["0.99", "2", "5.00", "4.00", "6.00"],
                     ["0.9", "2", "2.00", "1.00", "3.00"]]


def test_a_sweep_without_lists_is_refused(capsys):
    """It would train one run with the steps of the variant."""
    assert main(["sweep", "ppo", "--total-timesteps", "2048"]) == 2
    assert "a sweep needs several values of a flag: --seeds, or learning_rate," in capsys.readouterr().err


def test_the_table_is_printed_where_a_member_has_failed(tmp_path, capsys):
    """The exit code is that of its numbers."""
    assert sweep(tmp_path / "runs", "--learning-rate", "1e-2", "1e25", "--seeds", "1") == 4
    (line,) = (line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["1e+25"])
    assert line[1:] == ["0", "of", "1", "-", "-", "-"]


def test_a_resumed_sweep_ends_with_its_table(tmp_path, monkeypatch, capsys):
    """As the command that started it; a run and the runs of --num-seeds have none."""
    with monkeypatch.context() as patched:
        at_iteration(patched, 4, crash)
        with pytest.raises(CrashError):
            sweep(tmp_path / "runs", "--gamma", "0.9", "--seeds", "2", "7")
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out.endswith(sweep_table(tmp_path / "runs") + "\n")
    assert main(["resume", str(tmp_path / "runs" / "seed=2")]) == 0
    assert "lowest" not in capsys.readouterr().out


def test_the_progress_is_that_of_all_members(tmp_path, capsys):
    """It was that of the first one: its return, and its steps per second."""
    folder = tmp_path / "runs"
    assert sweep(folder, "--seeds", "1", "2", "3", "--logger", "console") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.endswith("done")]
    ends = [json.loads((path / "summary.json").read_text()) for path in member_folders(folder)]
    mean = np.mean([one["episodic_return_mean"] for one in ends])
    assert line.startswith(f"CartPole-v1  100 %  3 runs at step 320  mean return {mean:.2f}  SPS of all ")
    assert len({one["episodic_return_mean"] for one in ends}) == 3
    speed = float(line.partition("SPS of all ")[2].split()[0].replace(",", ""))
    assert speed == pytest.approx(sum(one["sps"] for one in ends), rel=0.2)


def test_the_tasks_that_the_help_names_are_those_of_the_engine():
    from proximo.envs.jax_control import control_tasks

    assert {*TASKS.split(", ")} == {*control_tasks()}
