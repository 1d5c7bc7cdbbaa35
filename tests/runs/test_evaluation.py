"""Evaluation during training: it changes nothing, is exact on resume, and keeps the best model."""

import re
import shutil

import gymnasium as gym
import numpy as np
import pytest

import proximo
from proximo.cli.main import main
from proximo.models.evaluate import Evaluation
from proximo.models.read_folder import read_model
from proximo.runs.evaluation import set_later_best_aside
from proximo.runs.folder.checkpoint import load_tree, save_tree
from tests.support.runs import SMALL, CrashError, at_iteration, crash, rows, same_logs, same_weights, train, weights
from tests.support.torchrun import run_lines_on_two_ranks

EVALUATED = ("--eval-every", "64", "--eval-episodes", "3", "--norm-obs", "--learning-rate", "0.05")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    assert train(folder, *EVALUATED) == 0
    return folder


def evaluations(folder):
    return {int(row["iteration"]): float(row["eval/return_mean"]) for row in rows(folder, "metrics.csv")
            if row["eval/return_mean"]}


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_training_is_the_same_with_and_without_evaluations(framework, tmp_path):
    """Bit-equal weights, statistics and training metrics: no random number of training is drawn by an evaluation."""
    if framework == "jax":
        pytest.importorskip("flax")
    words = ("--norm-obs", "--framework", framework)
    assert train(tmp_path / "without", *words) == train(tmp_path / "with", *words, "--eval-every", "64") == 0
    assert same_weights(tmp_path / "without", tmp_path / "with")
    one, other = (read_model(tmp_path / name)["obs_moments"] for name in ("without", "with"))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    drop = [{k: v for k, v in row.items() if not k.startswith("eval/")} for row in rows(tmp_path / "with", "metrics.csv")]
    assert drop == rows(tmp_path / "without", "metrics.csv") and len(evaluations(tmp_path / "with")) == 5


def test_every_crossing_of_the_steps_is_evaluated_and_the_best_model_is_kept(run, capsys):
    """Iterations have 32 steps. The kept model plays what its evaluation found: same seeds, deterministic actions."""
    found = evaluations(run)
    assert list(found) == [2, 4, 6, 8, 10]
    best = load_tree(run / "model-best")["best"]
    highest = max(found.values())
    assert best["return_mean"] == pytest.approx(highest) and best["iteration"] == max(
        i for i, mean in found.items() if mean == highest)
    played = proximo.evaluate(run / "model-best", episodes=3, seed=1)
    assert np.mean(played.returns) == pytest.approx(best["return_mean"])
    last, played = rows(run, "metrics.csv")[-1], proximo.evaluate(run / "model", episodes=3, seed=1)
    assert [float(last[f"eval/{name}"]) for name in ("return_mean", "return_std", "length_mean")] == pytest.approx(
        [np.mean(played.returns), np.std(played.returns), np.mean(played.lengths)])
    assert main(["eval", str(run), "--best", "--episodes", "3", "--seed", "1", "--deterministic"]) == 0
    assert f"{highest:.2f}" in capsys.readouterr().out
    assert main(["eval", str(run / "model"), "--best"]) == 2
    assert f"--best needs the folder of a run. Give {run} instead of {run / 'model'}." in capsys.readouterr().err
    assert main(["eval", str(run / "model-best"), "--best"]) == 2
    assert "model-best is the best model already. Leave --best out." in capsys.readouterr().err


def test_evaluations_that_do_not_divide_an_iteration(tmp_path):
    """Every 50 steps at 32 an iteration: crossed in iterations 2, 4, 5, 7, 8 and 10, once each."""
    train(tmp_path / "run", "--eval-every", "50", "--eval-episodes", "1")
    assert list(evaluations(tmp_path / "run")) == [2, 4, 5, 7, 8, 10]


@pytest.mark.parametrize("number", [2, 5, 7, 8])
def test_a_resumed_run_repeats_and_leaves_out_no_evaluation(number, run, tmp_path, monkeypatch):
    """Killed at an iteration with and without evaluation and checkpoint: metrics, weights and best model are equal."""
    at_iteration(monkeypatch, number, crash)
    with pytest.raises(CrashError):
        train(tmp_path / "broken", *EVALUATED)
    assert main(["resume", str(tmp_path / "broken")]) == 0
    assert same_logs(run, tmp_path / "broken") and same_weights(run, tmp_path / "broken")
    assert same_weights(run / "model-best", tmp_path / "broken" / "model-best")
    assert load_tree(run / "model-best")["best"] == load_tree(tmp_path / "broken" / "model-best")["best"]


def test_a_better_model_of_an_earlier_process_stays(tmp_path, monkeypatch):
    """The best value is read from the kept model: one that cannot be reached again is not replaced."""
    train(tmp_path / "run", "--eval-every", "320")
    kept = weights(tmp_path / "run" / "model-best")
    monkeypatch.setattr("proximo.runs.evaluation.play_in_new_envs", lambda *_, **__: proximo_evaluation(1.0))
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "640"]) == 0
    assert evaluations(tmp_path / "run")[20] == 1.0
    after = weights(tmp_path / "run" / "model-best")
    assert all(np.array_equal(kept[name], after[name]) for name in kept)


def test_a_best_model_that_cannot_be_read_is_replaced(tmp_path, monkeypatch, capsys):
    """Its mean is not known: the next evaluation finds the best model, however low its mean is."""
    run = tmp_path / "run"
    train(run, "--eval-every", "320")
    for file in (run / "model-best").iterdir():
        file.write_bytes(b"damaged")
    monkeypatch.setattr("proximo.runs.evaluation.play_in_new_envs", lambda *_, **__: proximo_evaluation(1.0))
    assert main(["resume", str(run), "--total-timesteps", "640"]) == 0
    assert load_tree(run / "model-best")["best"]["iteration"] == 20
    assert re.search(r"model-best cannot be read \(.*The best model is looked for again from here on", capsys.readouterr().err)


def test_a_best_model_that_a_resume_has_not_trained_yet_is_set_aside(tmp_path, monkeypatch, capsys):
    """The run continues from iteration 3, and its best model was of iteration 10: no later one could be kept."""
    monkeypatch.setattr("proximo.runs.evaluation.play_in_new_envs", lambda *_, **__: proximo_evaluation(1000.0))
    train(tmp_path / "run", "--eval-every", "64", "--keep-checkpoints", "0")
    for number in (6, 9, 10):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"{number:08d}")
    (tmp_path / "run" / "summary.json").unlink()
    monkeypatch.setattr("proximo.runs.evaluation.play_in_new_envs", lambda *_, **__: proximo_evaluation(1.0))
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "160"]) == 0
    best, old = (load_tree(tmp_path / "run" / name)["best"] for name in ("model-best", "model-best.old"))
    assert best == {"return_mean": 1.0, "iteration": 4, "steps": 128, "eval_env_kwargs": []} and old["iteration"] == 10
    assert "model-best is of an iteration after the one from which the run continues. It was renamed" in capsys.readouterr().err
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "320"]) == 0
    assert load_tree(tmp_path / "run" / "model-best.old")["best"] == old, "the best of an earlier iteration stays where it is"


@pytest.mark.parametrize(("first", "stays"), [(3, False), (4, False), (5, True)])
def test_a_best_model_of_the_iteration_that_is_played_again_is_set_aside(first, stays, tmp_path):
    """The run continues with iteration `first`, and the model is of iteration 4."""
    save_tree(tmp_path / "model-best", {"best": {"return_mean": 1.0, "iteration": 4, "steps": 128}})
    set_later_best_aside(tmp_path, first)
    assert [path.name for path in tmp_path.iterdir()] == ["model-best" if stays else "model-best.old"]


def proximo_evaluation(ret, episodes=20):
    return Evaluation(returns=[ret] * episodes, lengths=[1] * episodes, rows=[0] * episodes)


def test_evaluations_that_are_never_due_are_told(tmp_path, capsys):
    """320 steps: such a run has no best model. One at the end is due."""
    assert train(tmp_path / "none", "--eval-every", "321") == 0
    assert "eval_every=321 is more than the 320 steps of this run" in capsys.readouterr().err
    assert not (tmp_path / "none" / "model-best").exists()
    assert train(tmp_path / "one", "--eval-every", "320", "--eval-episodes", "2") == 0
    assert "eval_every" not in capsys.readouterr().err and (tmp_path / "one" / "model-best").exists()


def test_an_evaluation_that_fails_is_told_and_training_continues(tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise proximo.UsageError("no episode ended")

    monkeypatch.setattr("proximo.runs.evaluation.play_in_new_envs", fail)
    assert train(tmp_path / "run", "--eval-every", "320") == 0
    assert "No evaluation after 320 steps: no episode ended" in capsys.readouterr().err
    assert evaluations(tmp_path / "run") == {} and not (tmp_path / "run" / "model-best").exists()
    assert main(["eval", str(tmp_path / "run"), "--best"]) == 2
    assert "has no model-best: no evaluation took place. Train with --eval-every N." in capsys.readouterr().err


def test_an_evaluation_without_its_longest_episodes_is_none(tmp_path, monkeypatch, capsys):
    """An episode that goes on may be a better one than those that have ended."""
    monkeypatch.setattr("proximo.runs.evaluation.play_in_new_envs", lambda *_, **__: proximo_evaluation(5.0, 1))
    assert train(tmp_path / "run", "--eval-every", "320", "--eval-episodes", "2") == 0
    assert "CartPole-v1: 1 of 2 episodes ended within 50,000 steps. Allow more with --eval-max-steps N, or give" in (
        capsys.readouterr().err)
    assert evaluations(tmp_path / "run") == {} and not (tmp_path / "run" / "model-best").exists()


def test_the_longest_episode_of_an_evaluation_is_a_setting(tmp_path, capsys):
    """No episode of CartPole ends within 3 steps; a resume allows more."""
    words = ("--eval-every", "160", "--eval-episodes", "2")
    assert train(tmp_path / "run", *words, "--eval-max-steps", "3") == 0
    assert "No evaluation after 160 steps: CartPole-v1: 0 of 2 episodes ended within 3 steps." in capsys.readouterr().err
    assert evaluations(tmp_path / "run") == {}
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "480", "--eval-max-steps", "500"]) == 0
    assert list(evaluations(tmp_path / "run")) == [15]


KINDS = {
    "lstm": ("ppo", "--recurrent lstm", ""), "continuous": ("ppo_continuous_action", "--env-id Pendulum-v1", ""),
    "masked": ("ppo", "--env-id tests.support.probes:Masked-v0", ""), "envpool": ("ppo", "--engine envpool", "envpool_assets"),
    "rebuilt": ("ppo", "--env-id LunarLander-v3", "Box2D"), "workers": ("ppo", "--env-workers 2", ""),
    "brax": ("ppo_continuous_action_isaacgym", "--env-id fast --framework jax", "brax"),
    "inside": ("ppo", "--framework jax --engine jax", "flax")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_is_evaluated_and_stays_as_it_was(kind, tmp_path):
    variant, words, package = KINDS[kind]
    if package:
        pytest.importorskip(package)
    words = (*words.split(), "--total-timesteps", "64")
    assert train(tmp_path / "without", *words, variant=variant) == 0
    assert train(tmp_path / "with", *words, "--eval-every", "64", "--eval-episodes", "1", variant=variant) == 0
    assert same_weights(tmp_path / "with", tmp_path / "without")
    assert list(evaluations(tmp_path / "with")) == [2] and weights(tmp_path / "with" / "model-best")


def test_the_first_of_two_processes_evaluates(tmp_path):
    """Two ranks, with and without evaluations; the second one resumes automatically, after the end."""
    line = f"train ppo {' '.join(SMALL)} --num-envs 4 --total-timesteps 128 --threads 1 --run-dir {tmp_path}"
    run_lines_on_two_ranks([f"{line}/with --eval-every 64", f"{line}/without"], tmp_path)
    text = run_lines_on_two_ranks([f"{line}/without --resume auto"], tmp_path)
    assert same_weights(tmp_path / "with", tmp_path / "without") and list(evaluations(tmp_path / "with")) == [1, 2]
    assert "all 2 iterations are done" in text and not list(tmp_path.glob("*/.lock"))


def test_several_seeds_are_evaluated_each(tmp_path):
    pytest.importorskip("flax")
    assert train(tmp_path / "group", "--framework", "jax", "--engine", "jax", "--num-seeds", "2", "--eval-every", "160") == 0
    for seed in (1, 2):
        assert list(evaluations(tmp_path / "group" / f"seed-{seed}")) == [5, 10]
        assert (tmp_path / "group" / f"seed-{seed}" / "model-best").is_dir()


def test_an_environment_and_a_network_of_ones_own_are_evaluated(tmp_path):
    import gymnasium as gym

    folder = proximo.train(env=lambda: gym.make("CartPole-v1"), num_envs=2, num_steps=16, total_timesteps=128,
                           hidden_sizes=(8,), run_dir=str(tmp_path / "own"), logger="none", eval_every=64)
    assert list(evaluations(folder)) == [2, 4]


def test_evaluations_that_begin_at_a_resume_are_told_to_be_missing_in_the_table(tmp_path, capsys):
    """The columns of metrics.csv are those of the first iteration."""
    assert train(tmp_path / "run", "--total-timesteps", "128") == 0
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "320", "--eval-every", "64", "--eval-episodes", "1"]) == 0
    assert capsys.readouterr().err.count("metrics.csv has no columns for evaluations, because the run began without") == 1


class Bonus(gym.Wrapper):
    """CartPole with another reward at each step, which an argument chooses."""

    def __init__(self, reward=1.0, floats=4):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=9))
        self.reward = reward
        self.observation_space = gym.spaces.Box(-9, 9, (floats,))

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return np.resize(obs, self.observation_space.shape), info

    def step(self, action):
        obs, _, *end = self.env.step(action)
        return np.resize(obs, self.observation_space.shape), self.reward, *end


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_evaluations_may_have_arguments_of_their_own(tmp_path, framework):
    """Training has rewards of 3, evaluations of 0.5; other arguments are those of training. A resume may change them."""
    fields = {"num_envs": 2, "num_steps": 16, "num_minibatches": 1, "eval_every": 32, "framework": framework}
    run = proximo.train(env=Bonus, env_kwargs={"reward": 3.0, "floats": 5}, eval_env_kwargs={"reward": 0.5},
                        total_timesteps=64, run_dir=str(tmp_path / "run"), **fields)
    table = rows(run, "metrics.csv")
    assert [float(row["eval/return_mean"]) / float(row["eval/length_mean"]) for row in table] == [0.5, 0.5]
    assert {float(row["return"]) / float(row["length"]) for row in rows(run, "episodes.csv")} == {3.0}
    proximo.resume(run, env=Bonus, total_timesteps=96, eval_env_kwargs={})
    last = rows(run, "metrics.csv")[-1]
    assert float(last["eval/return_mean"]) / float(last["eval/length_mean"]) == 3.0


@pytest.mark.parametrize("kwargs, sentence", [({"reword": 1}, "eval_env_kwargs: .*could not be made with env_kwargs reword=1"),
                                              ({"floats": 3}, "observations")])
def test_wrong_arguments_of_evaluations_are_found_before_the_log_begins(tmp_path, kwargs, sentence):
    """The run ends after its first iteration, long before the first evaluation, and leaves no folder."""
    with pytest.raises(proximo.UsageError, match=sentence):
        proximo.train(env=Bonus, eval_env_kwargs=kwargs, total_timesteps=1024, eval_every=1024, num_envs=2, num_steps=16,
                      run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words, sentence", [
    (("--eval-env-kwargs", "a=1"), "eval_env_kwargs has no effect without evaluations"),
    (("--eval-every", "64", "--eval-env-kwargs", "a"), "eval_env_kwargs: 'a' is not key=value"),
    (("--eval-every", "64", "--eval-env-kwargs", "a=1", "a=2"), "eval_env_kwargs has a twice"),
    (("--eval-every", "64", "--eval-env-kwargs", "a=1", "--engine", "envpool"), "eval_env_kwargs is not available")])
def test_what_eval_env_kwargs_cannot_be(tmp_path, words, sentence, capsys):
    """One sentence each, with exit code 2."""
    assert train(tmp_path / "run", *words) == 2
    assert sentence in capsys.readouterr().err


def test_a_best_model_of_other_evaluations_is_set_aside(tmp_path, caplog):
    """Its mean of 3 per step could never be reached by evaluations with 0.5; without evaluations, the arguments go too.

    All models of one kind of evaluation have the same mean: the newest is the best one.
    """
    fields = {"num_envs": 2, "num_steps": 16, "num_minibatches": 1, "eval_every": 32}
    run = proximo.train(env=Bonus, eval_env_kwargs={"reward": 3.0}, total_timesteps=64, run_dir=str(tmp_path / "run"), **fields)
    proximo.resume(run, env=Bonus, total_timesteps=96, eval_env_kwargs={"reward": 0.5})
    best, old = (load_tree(run / name)["best"] for name in ("model-best", "model-best.old"))
    assert (best["iteration"], best["eval_env_kwargs"], old["eval_env_kwargs"]) == (3, ["reward=0.5"], ["reward=3.0"])
    assert old["iteration"] == 2
    assert "model-best was evaluated with other eval_env_kwargs. It was renamed to model-best.old" in caplog.text
    proximo.resume(run, env=Bonus, total_timesteps=128, eval_env_kwargs={"reward": 0.25})
    assert load_tree(run / "model-best.old")["best"]["eval_env_kwargs"] == ["reward=0.5"]
    proximo.resume(run, env=Bonus, total_timesteps=160, eval_every=0)
    assert rows(run, "metrics.csv")[-1]["eval/return_mean"] == ""
