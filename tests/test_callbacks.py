"""Callbacks from Python: what they see, what they log, and how they end training."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import proximo
from proximo.errors import UsageError
from proximo.on_torch.assemble import assemble
from proximo.runs.folder.checkpoint import checkpoints
from tests.support.runs import rows, same_weights

FIELDS = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "hidden_sizes": (8,), "total_timesteps": 320,
          "checkpoint_every": 4, "logger": "none"}


def train(folder, *callbacks, **fields):
    return proximo.train("ppo", run_dir=folder, callbacks=callbacks, **FIELDS | fields)


def test_a_callback_sees_every_iteration_and_logs_numbers(tmp_path):
    """Its metrics stand in the row of the iteration it was called with, and weights are those of a run without it."""
    seen = []

    def watch(it):
        seen.append(it.iteration)
        return {"double": 2 * it.iteration, "loss": it.stats["losses/value_loss"]}

    train(tmp_path / "run", watch, lambda it: None)
    assert seen == list(range(1, 11))
    for row in rows(tmp_path / "run", "metrics.csv"):
        assert float(row["user/double"]) == 2 * int(row["iteration"]) and row["user/loss"] == row["losses/value_loss"]
    assert same_weights(tmp_path / "run", train(tmp_path / "plain"))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_callback_ends_training_as_finished_and_a_resume_goes_to_the_end(framework, tmp_path, capsys):
    """Summary, model and checkpoint are those of the iteration; resumed, the run equals the one that was left alone."""
    if framework == "jax":
        pytest.importorskip("flax")

    def stop(it):
        if it.iteration == 5:
            raise proximo.StopTraining("five is enough")

    run = train(tmp_path / "run", stop, framework=framework, logger="console")
    assert json.loads((run / "summary.json").read_text())["steps"] == 160
    assert checkpoints(run)[-1].name == "00000005" and len(rows(run, "metrics.csv")) == 5
    assert "Ended after iteration 5 of 10: five is enough. To train longer: proximo resume" in (said := capsys.readouterr()).err
    assert said.out.endswith("  ended: five is enough\n") and " left" not in said.out
    proximo.resume(run)
    assert same_weights(run, train(tmp_path / "whole", framework=framework))
    assert len(rows(run, "metrics.csv")) == 10


@pytest.mark.parametrize("returned", [3, {"a": "x"}, ["a"], {"a": None}, {"a": 10**400}, False, True, 0, "",
                                      []])
def test_what_a_callback_may_not_return_is_told(returned, tmp_path):
    """False ends training in other libraries, so the sentence says what does so here."""
    with pytest.raises(proximo.UsageError, match="A callback returned .* Return None, or numbers by name .* raise "
                                                 r"proximo\.StopTraining"):
        train(tmp_path / "run", lambda it: returned)


def test_a_resume_without_the_callbacks_says_which_columns_stay_empty(tmp_path, caplog):
    def give(it):
        return {"double": 2 * it.iteration}

    run = train(tmp_path / "run", give)
    proximo.resume(run, total_timesteps=352, callbacks=[give])
    assert "callbacks" not in caplog.text
    proximo.resume(run, total_timesteps=384)
    assert "user/double will be empty from here on: callbacks gave these metrics, and none were given." in caplog.text
    assert [row["user/double"] for row in rows(run, "metrics.csv")[-2:]] == ["22", ""]


def test_stop_at_waits_for_so_many_episodes(tmp_path):
    """Every return of CartPole is at least 8; the run ends when the fifth episode has ended."""
    run = train(tmp_path / "run", proximo.callbacks.stop_at(8, episodes=5), total_timesteps=3200)
    summary = json.loads((run / "summary.json").read_text())
    assert 5 <= summary["episodes"] < 10 and summary["steps"] < 3200
    never = train(tmp_path / "never", proximo.callbacks.stop_at(1000, episodes=1))
    assert json.loads((never / "summary.json").read_text())["steps"] == 320


def test_callbacks_see_evaluations_and_can_end_training_by_them(tmp_path):
    """Evaluations are due after 64 steps, in the iterations 2, 4, ...; every return of CartPole is at least 8."""
    seen = []
    fields = {"eval_every": 64, "eval_episodes": 2}
    train(tmp_path / "run", lambda it: seen.append(it.stats["eval/return_mean"]), **fields, total_timesteps=128)
    assert [mean == mean for mean in seen] == [False, True, False, True] and seen[1] >= 8
    run = train(tmp_path / "stopped", proximo.callbacks.stop_at_evaluation(8), **fields)
    assert json.loads((run / "summary.json").read_text())["steps"] == 64


def test_an_end_by_evaluations_needs_evaluations(tmp_path):
    """Without them the run would never end by this callback."""
    with pytest.raises(proximo.UsageError, match="the run has no evaluations. Set eval_every"):
        train(tmp_path / "run", proximo.callbacks.stop_at_evaluation(8))


def test_a_number_of_episodes_may_be_one_of_numpy(tmp_path):
    """It was a TypeError in the middle of a list of arguments that had been checked."""
    stops = proximo.callbacks.stop_at(10**6, np.int64(3)), proximo.callbacks.stop_without_improvement(999, np.int32(3))
    assert train(tmp_path / "run", *stops).exists()


def test_stop_after_seconds(tmp_path):
    run = train(tmp_path / "run", proximo.callbacks.stop_after(0))
    assert json.loads((run / "summary.json").read_text())["steps"] == 32


def test_stop_without_improvement(tmp_path):
    """Rewards are always 1 and episodes have 5 steps: the first mean of two episodes is the best there is."""
    import gymnasium as gym

    run = train(tmp_path / "run", proximo.callbacks.stop_without_improvement(3, episodes=2),
                env=lambda: gym.make("CartPole-v1", max_episode_steps=5), total_timesteps=3200)
    assert json.loads((run / "summary.json").read_text())["steps"] == 32 * 4


def test_improvement_is_awaited_from_the_first_mean_on():
    """No episode ends in the first iterations: that is no lack of improvement."""
    callback = proximo.callbacks.stop_without_improvement(2, episodes=1)
    for iteration, returns in enumerate(([], [], [], [5.0], []), start=1):
        callback(SimpleNamespace(iteration=iteration, finished=SimpleNamespace(ret=np.array(returns))))
    with pytest.raises(proximo.StopTraining, match="has not exceeded 5.00 for 2 iterations"):
        callback(SimpleNamespace(iteration=6, finished=SimpleNamespace(ret=np.array([4.0]))))


def test_callbacks_belong_to_one_run_in_one_process(tmp_path, monkeypatch):
    with pytest.raises(proximo.UsageError, match=r"Leave callbacks out, or call proximo\.train once"):
        train(tmp_path / "run", print, framework="jax", engine="jax", num_seeds=2)
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2"),
                        ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(proximo.UsageError, match="callbacks were given, but 2 processes train together"):
        train(tmp_path / "run", print)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["a,b", "x\ny", "", " a", 'say "x"', "tab\t"])
def test_a_name_that_metrics_csv_cannot_hold_is_refused(name, tmp_path):
    with pytest.raises(proximo.UsageError, match="A callback returned a metric with the name"):
        train(tmp_path / "run", lambda it: {name: 1.5})


def test_a_name_of_a_later_iteration_is_told_once(tmp_path, caplog):
    """metrics.csv has the columns of the first iteration."""
    run = train(tmp_path / "run", lambda it: {"a": 1} | ({"late": 2} if it.iteration > 2 else {}))
    assert caplog.text.count("user/late was not returned in the first iteration") == 1
    assert "user/a" in rows(run, "metrics.csv")[0] and "user/late" not in rows(run, "metrics.csv")[0]


def test_two_callbacks_with_one_name_are_refused(tmp_path):
    with pytest.raises(proximo.UsageError, match="Two callbacks returned the metric user/a"):
        train(tmp_path / "run", lambda it: {"a": 1}, lambda it: {"a": 2, "b": 3})


def test_a_function_that_makes_a_callback_has_to_be_called(tmp_path):
    """It was called with the first iteration, which it took for a return."""
    given = [proximo.callbacks.stop_at, proximo.callbacks.stop_after]
    with pytest.raises(proximo.UsageError) as error:
        train(tmp_path / "run", *given)
    assert str(error.value).splitlines() == [
        f"callbacks has {one.__name__}, which makes a callback. Call it: {one.__name__}(...)." for one in given]


@pytest.mark.parametrize("given", [print, [3, print], [proximo.StopTraining], None, "stop"])
def test_what_is_no_list_of_functions_is_refused_before_training(given, tmp_path):
    """Together with the other problems."""
    with pytest.raises(proximo.UsageError, match="callbacks") as error:
        proximo.train("ppo", run_dir=tmp_path / "run", callbacks=given, **FIELDS | {"gamma": 3})
    assert "gamma" in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(("make", "names"), [
    (lambda: proximo.callbacks.stop_at("475", 2.5), ("ret='475'", "episodes=2.5")),
    (lambda: proximo.callbacks.stop_at(475, episodes=0), ("episodes=0",)),
    (lambda: proximo.callbacks.stop_at_evaluation(None), ("ret=None",)),
    (lambda: proximo.callbacks.stop_after("60"), ("seconds='60'",)),
    (lambda: proximo.callbacks.stop_at(475, episodes=float("inf")), ("episodes=inf",)),
    (lambda: proximo.callbacks.stop_without_improvement(-5, True), ("iterations=-5", "episodes=True"))])
def test_arguments_of_the_functions_that_end_training(make, names):
    with pytest.raises(proximo.UsageError) as error:
        make()
    assert len(str(error.value).splitlines()) == len(names) and all(name in str(error.value) for name in names)


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit])
def test_a_fault_of_a_callback_loses_at_most_its_own_iteration(fault, tmp_path, monkeypatch, caplog):
    """No checkpoint is due before the fault. The resumed run ends with the weights of one without a fault."""
    monkeypatch.setattr("proximo.runs.interrupts.recent.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("proximo.runs.interrupts.recent.SHARE", 1e9)

    def fail(it):
        if it.iteration == 3:
            raise fault("broken")

    folder = tmp_path / "run"
    with pytest.raises((fault, proximo.EnvError)):
        train(folder, fail)
    assert [path.name for path in checkpoints(folder)] == ["00000002"]
    assert "Iteration 2 was saved. Resume with: " in caplog.text
    proximo.resume(folder, logger="none")
    assert same_weights(folder, train(tmp_path / "whole"))


@pytest.mark.parametrize("fields", [{}, {"framework": "jax"}, {"norm_obs": True, "norm_reward": True}, {"recurrent": "lstm"},
                                    {"env_workers": 2}, {"overlap": True}], ids=str)
def test_a_callback_gets_the_model(tmp_path, fields):
    """In the last iteration it acts as the model of the run does; playing with it changes nothing in what is learned."""
    def play(it):
        models.append(it.model())
        returns.append(proximo.evaluate(models[-1], episodes=1).returns)

    models, returns = [], []
    small = {"env_id": "CartPole-v1", "total_timesteps": 96, "num_envs": 2, "num_steps": 16, "num_minibatches": 1} | fields
    run = proximo.train("ppo", callbacks=[play], run_dir=str(tmp_path / "with"), **small)
    assert same_weights(run, proximo.train("ppo", run_dir=str(tmp_path / "without"), **small))
    assert len(models) == len(returns) == 3
    saved, obs = proximo.load(run), np.random.default_rng(0).normal(size=(50, 4))
    for model, equal in ((models[-1], True), (models[0], False)):
        for one in (saved, model):
            one.reset()
        pairs = [(saved.value(row), model.value(row)) for row in obs]
        assert all(np.array_equal(one, other) for one, other in pairs) == equal


def test_the_loop_has_the_model_too():
    """With a network of the program; in the next iteration it is too late."""
    its = []
    for it in proximo.iterations("ppo", env_id="CartPole-v1", make_agent=assemble, total_timesteps=64, num_envs=2, num_steps=16,
                                 num_minibatches=1):
        assert it.model().act(np.zeros(4)) in (0, 1)
        its.append(it)
    with pytest.raises(UsageError, match=r"weights\(\) of iteration 1 was called when iteration 2 had begun"):
        its[0].model()
