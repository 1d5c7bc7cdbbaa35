"""Whole training runs against what must hold in them, on both frameworks."""

import pkgutil
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.state.gym import announce_rebuilds
from proximo.errors import UsageError
from proximo.streams import env_seeds
from tests.support.probes import Seconds


@pytest.fixture(autouse=True)
def _float32(framework):
    """Runs are in float32, as users have them."""
    with framework.float32():
        yield


@pytest.mark.parametrize("fields,probe", [
    ({}, "Masked"), ({"shared_network": True}, "Bounded"), ({"recurrent": "lstm"}, "Masked")])
def test_first_pass_of_learning_finds_the_policy_that_acted(framework, fields, probe):
    """Detail 36: before the first step of the optimizer every ratio is 1, also in rollouts that begin in the middle of
    episodes."""
    cfg = Config(framework=framework.name, env_id=f"tests.support.probes:{probe}-v0", num_envs=4, num_steps=10, num_minibatches=1,
                 update_epochs=1, memory_size=8, total_timesteps=120, learning_rate=0.1, **fields)
    parts = parts_of("ppo", framework.name)
    for it in parts.train(cfg, parts.make_envs, parts.make_agent):
        assert abs(it.stats["losses/old_approx_kl"]) < 1e-6 and it.stats["losses/clipfrac"] == 0


def test_whole_numbers_of_64_bits_are_learned_from_as_the_same_floats(framework):
    """Every bit of the weights, where the cue is in the upper 32 bits."""
    class Floats(Seconds):
        observation_space = spaces.Box(-2.0**40, 2.0**40, (2,), np.float32)

        def observe(self):
            return super().observe().astype(np.float32)

    cfg, parts = Config(framework=framework.name, num_envs=4, num_steps=16, hidden_sizes=(8, 8), total_timesteps=128), parts_of("ppo", framework.name)
    weights = []
    for env in (Seconds, Floats):
        *_, last = parts.train(cfg, lambda cfg, seeds, env=env: GymEnvs(env, seeds, "Seconds"), parts.make_agent)
        weights.append(last.weights())
    assert all(np.array_equal(weights[0][name], x) for name, x in weights[1].items())


class PoisonedEnvs:
    """Environments whose filler rows have a given reward, which nobody may learn from."""

    def __init__(self, envs, reward):
        self.envs, self.reward, self.fillers = envs, reward, 0

    def __getattr__(self, name):
        return getattr(self.envs, name)

    def step(self, action):
        step = self.envs.step(action)
        self.fillers += int((~step.valid).sum())
        return step._replace(reward=np.where(step.valid, step.reward, np.float32(self.reward)))


class MeasuredEnvs(PoisonedEnvs):
    """Environments that report a count, and a number that only the second row has, at every second step."""

    metric_names, time = ("env_restarts", "speed", "nothing"), 0

    def step(self, action):
        self.time += 1
        speed = np.array([np.nan, self.time if self.time % 2 else np.nan], np.float32)
        return self.envs.step(action)._replace(metrics={
            "env_restarts": np.full(2, self.time, np.float32), "speed": speed, "nothing": speed * np.nan})


def test_metrics_are_means_and_counts_are_what_they_are_at_last(framework):
    """Of rollouts of eight steps: of the odd ones among 1-8 and 9-16, and the last one."""
    cfg, parts = Config(framework=framework.name, num_envs=2, num_steps=8, hidden_sizes=(8, 8), total_timesteps=32), parts_of("ppo", framework.name)
    seen = [[it.stats[f"charts/{name}"] for name in MeasuredEnvs.metric_names] for it in parts.train(
        cfg, lambda cfg, seeds: MeasuredEnvs(make_gym(replace(cfg, engine="gym"), seeds), 0), parts.make_agent)]
    np.testing.assert_equal(seen, [[8, 4, np.nan], [16, 12, np.nan]])
    assert all(type(x) is float for row in seen for x in row)


@pytest.mark.parametrize("change", [{"recurrent": "lstm", "norm_adv": "batch"}, {"target_kl": 0.01}])
def test_the_reward_of_a_filler_row_changes_nothing(framework, change):
    """Against the same run with a reward of 0 in filler rows: every bit of weights and statistics."""
    cfg = Config(framework=framework.name, env_id="tests.support.probes:Acting-v0", autoreset="next-step", num_envs=4, num_steps=16,
                 hidden_sizes=(8, 8), memory_size=8, total_timesteps=3 * 64, **change)
    parts, results = parts_of("ppo", framework.name), []
    for reward in (0, 1e6, np.nan):
        envs = PoisonedEnvs(make_gym(cfg, range(4)), reward)
        *_, last = parts.train(cfg, lambda cfg, seeds, envs=envs: envs, parts.make_agent)
        assert envs.fillers == last.steps == 96  # every second row is a filler and counts for nothing
        results.append((last.weights(), last.stats))
    for weights, stats in results[1:]:
        assert all(np.array_equal(results[0][0][name], x) for name, x in weights.items())
        np.testing.assert_equal(results[0][1], stats)


def test_minibatches_of_filler_rows_are_left_out(framework):
    """Of minibatches of one row, half are fillers: Adam takes a step for the others only. Momentum would move the weights."""
    cfg = Config(framework=framework.name, env_id="tests.support.probes:Acting-v0", autoreset="next-step", num_envs=4, num_steps=4,
                 num_minibatches=16, update_epochs=3, norm_adv="none", hidden_sizes=(8,), total_timesteps=32)
    parts = parts_of("ppo", framework.name)
    for it in parts.train(cfg, make_gym, parts.make_agent):
        (taken,) = (x for name, x in it.snapshot()["adam"].items() if name in ("step", ".step"))
        assert taken == it.iteration * 3 * 8


@pytest.mark.parametrize(("processes", "cause"), [
    (1, "The state of CartPole-v1 cannot be saved"), (2, "The checkpoints of 2 processes do not contain their environments")])
def test_what_is_made_again_is_said_with_its_cause_and_its_interval(processes, cause, capsys):
    announce_rebuilds(Config(num_steps=16, checkpoint_every=30), processes)
    assert f"{cause}. The environments are made again every 30 iterations (480 steps of each)" in capsys.readouterr().err


@pytest.mark.parametrize("every", [3, 100])
def test_a_resume_between_two_checkpoints_plays_environments_of_its_own(framework, every):
    """Environments whose state cannot be saved: those of a resume have the seeds of its first iteration, and do not
    repeat the start of the run. Normalisation continues. All are closed in the end."""
    cfg = Config(framework=framework.name, num_envs=2, num_steps=8, num_minibatches=1, update_epochs=1, hidden_sizes=(8, 8), engine="gym",
                 total_timesteps=6 * 16, checkpoint_every=3, norm_obs=True)
    parts, made, envs = parts_of("ppo", framework.name), [], []

    def make_envs(cfg, seeds):
        made.append(list(seeds))
        envs.append(Forgetful(make_gym(cfg, seeds)))
        return envs[-1]

    kept = [it.snapshot() for it in parts.train(cfg, make_envs, parts.make_agent)][3]
    assert made == [env_seeds(cfg.seed, 2, 0), env_seeds(cfg.seed, 2, 4)]
    made.clear()
    first, second = parts.train(replace(cfg, checkpoint_every=every), make_envs, parts.make_agent, state=kept)
    assert made[1:] == [env_seeds(cfg.seed, 2, 5)] and first.iteration == 5
    assert second.statistics.obs.count == pytest.approx(6 * 16 + 3 * 2, abs=0.1)  # three resets
    assert [one.closed for one in envs] == [True] * 4


def test_environments_are_closed_where_there_is_no_network(framework):
    parts, made = parts_of("ppo", framework.name), []

    def make_envs(cfg, seeds):
        made.append(Forgetful(make_gym(cfg, seeds)))
        return made[-1]

    def refuse(spec, cfg):
        raise UsageError("no network")

    with pytest.raises(UsageError, match="no network"):
        next(parts.train(Config(framework=framework.name, engine="gym", num_envs=2, num_steps=8, total_timesteps=16), make_envs, refuse))
    assert [one.closed for one in made] == [True]


def test_a_checkpoint_without_the_environments_can_be_resumed(framework, capsys):
    """Their state could be saved at first, and not later: the resume makes them again, with a warning."""
    cfg = Config(framework=framework.name, num_envs=2, num_steps=8, num_minibatches=1, update_epochs=1, hidden_sizes=(8, 8), engine="gym",
                 total_timesteps=6 * 16, checkpoint_every=2)
    parts, made = parts_of("ppo", framework.name), []

    def make_envs(cfg, seeds):
        made.append(list(seeds))
        return Hiding(make_gym(cfg, seeds))

    kept = [it.snapshot() for it in parts.train(cfg, make_envs, parts.make_agent)][2]
    assert kept["envs"] is None and len(made) == 1
    capsys.readouterr()
    later = list(parts.train(cfg, make_envs, parts.make_agent, state=kept))
    assert [it.iteration for it in later] == [4, 5, 6] and not any(it.keeps_state for it in later)
    assert made[2:] == [env_seeds(cfg.seed, 2, 4), env_seeds(cfg.seed, 2, 5)]
    assert "The checkpoint does not contain the environments" in capsys.readouterr().err


class Forgetful:
    """Environments whose state cannot be saved. They note that they were closed."""

    keeps_state, closed = False, False

    def __init__(self, envs):
        self.envs = envs

    def __getattr__(self, name):
        return getattr(self.envs, name)

    def state(self):
        return None

    def close(self):
        self.closed = True
        self.envs.close()


class Hiding(Forgetful):
    """Environments whose state can no longer be saved."""

    keeps_state = True


def test_only_the_newest_iteration_can_be_asked(framework):
    """An earlier one would return what training has changed since; after the end the environments are closed."""
    cfg = Config(framework=framework.name, engine="gym", num_envs=2, num_steps=8, num_minibatches=1, hidden_sizes=(8, 8), total_timesteps=48)
    parts = parts_of("ppo", framework.name)
    first, *_, last = its = [*parts.train(cfg, parts.make_envs, parts.make_agent)]
    for it in its[:-1]:
        for name in ("snapshot", "weights"):
            with pytest.raises(UsageError, match=rf"{name}\(\) of iteration {it.iteration} was called when iteration 3 had begun"):
                getattr(it, name)()
    with pytest.raises(UsageError, match=r"snapshot\(\) of iteration 3 was called when training had ended"):
        last.snapshot()
    training = parts.train(cfg, parts.make_envs, parts.make_agent)
    kept = [(it.snapshot(), it.weights()) for it, _ in zip(training, range(2))]
    training.close()
    assert kept[1][0]["iteration"] == 2
    *_, again = parts.train(cfg, parts.make_envs, parts.make_agent, state=kept[1][0])
    assert all(np.array_equal(x, last.weights()[name]) for name, x in again.weights().items())


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_schedule_of_the_entropy_bonus_is_another_weight_in_each_iteration(framework, schedule, compiled):
    """Against a run that is resumed before its second iteration of two with half of the weight."""
    if compiled and framework.name == "jax":
        pytest.skip("--compile is for torch; JAX always compiles")
    cfg = Config(framework=framework.name, num_envs=2, num_steps=8, num_minibatches=1, hidden_sizes=(8, 8), total_timesteps=32,
                 ent_coef=20.0, learning_rate=0.01, compile=compiled)
    parts = parts_of("ppo", framework.name)
    kept, before = next((it.snapshot(), it.weights()) for it in parts.train(cfg, parts.make_envs, parts.make_agent))
    half, unchanged = ([*parts.train(replace(cfg, ent_coef=weight), parts.make_envs, parts.make_agent, state=kept)][-1].weights()
                       for weight in (10.0, 20.0))
    first, second = [it.weights() for it in parts.train(replace(cfg, anneal_ent=schedule), parts.make_envs, parts.make_agent)]
    assert all(np.array_equal(x, before[name]) for name, x in first.items())
    for name, x in second.items():
        np.testing.assert_allclose(x, half[name], rtol=1e-5, atol=1e-7)
    assert max(np.abs(x - unchanged[name]).max() for name, x in second.items()) > 1e-5


@pytest.mark.parametrize(("change", "rate"), [({"learning_rate": 1e-2}, 1e-2), ({"learning_rate": 1e-5}, 0.0025),
                                              ({"desired_kl": None}, 1e-6)])
def test_a_resume_keeps_the_adapted_learning_rate_within_its_limits(framework, change, rate):
    """The factor of a checkpoint (here 250) belongs to the learning rate of its run. The first step of Adam moves weights by
    the learning rate."""
    cfg = Config(framework=framework.name, num_envs=2, num_steps=8, num_minibatches=1, update_epochs=1, hidden_sizes=(8, 8), total_timesteps=32,
                 learning_rate=1e-6, anneal_lr=False, desired_kl=1e3, max_grad_norm=1e9)
    parts = parts_of("ppo", framework.name)
    kept = next(it.snapshot() for it in parts.train(cfg, parts.make_envs, parts.make_agent))
    for name, x in kept["adam"].items():
        kept["adam"][name] = np.full_like(x, 250) if name.endswith("scale") else x * (0 if "exp" in name or "step" in name else 1)
    cfg = replace(cfg, total_timesteps=32, **change)
    before = np.concatenate([x.ravel() for x in weights_of(kept["adam"])])
    found = next(weights_of(it.snapshot()["adam"]) for it in parts.train(cfg, parts.make_envs, parts.make_agent, state=kept))
    moved = np.abs(np.concatenate([x.ravel() for x in found]) - before)
    assert moved.max() == pytest.approx(rate, rel=0.05)


def weights_of(adam):
    return [x for name, x in adam.items() if name.lstrip(".").startswith("weights")]


@pytest.mark.parametrize("setting", ["target_kl", "desired_kl"])
def test_a_loss_without_approx_kl_is_refused_where_a_setting_reads_it(framework, setting):
    """A loss function of one's own returns the statistics that it likes."""
    parts = parts_of("ppo", framework.name)

    def loss_fn(batch, cfg):
        return (batch.value - batch.ret).sum(), {"v_loss": batch.value.sum()}

    def run(**change):
        return next(parts.train(Config(framework=framework.name, num_envs=2, num_steps=8, total_timesteps=16, **change), parts.make_envs,
                                parts.make_agent, loss_fn))

    assert "losses/v_loss" in run().stats
    with pytest.raises(UsageError, match=f"{setting}=0.1 needs the statistic approx_kl, and the loss function returns v_loss"):
        run(**{setting: 0.1})


def test_entropies_of_another_shape_than_the_rows_are_refused(framework, monkeypatch):
    """Those of shape (B, 1) of a distribution of one's own would broadcast to (B, B)."""
    owner = f"proximo.on_{framework.name}.distributions.Categorical"
    entropy = pkgutil.resolve_name(owner).entropy
    monkeypatch.setattr(f"{owner}.entropy", lambda self: entropy(self)[..., None])
    parts, cfg = parts_of("ppo", framework.name), Config(framework=framework.name, num_envs=2, num_steps=8, total_timesteps=16)
    with pytest.raises(UsageError, match=r"entropy of shape \((\d+), 1\) for rows of shape \(\1,\). Return one number per row"):
        next(parts.train(cfg, parts.make_envs, parts.make_agent))


def test_log_probabilities_of_another_shape_than_the_rollout_are_refused(framework, monkeypatch):
    """Of an agent that evaluates whole rollouts, also of environments inside the compiled function."""
    owner = f"proximo.on_{framework.name}.agent.SeparateAgent"
    evaluate = pkgutil.resolve_name(owner).evaluate

    def apart(self, *given):
        logprob, value = evaluate(self, *given)
        return logprob[..., None], value

    monkeypatch.setattr(f"{owner}.evaluate", apart)
    parts, cfg = parts_of("ppo", framework.name), Config(framework=framework.name, num_envs=2, num_steps=8, total_timesteps=16)
    words = r"logprob of shape \(8, 2, 1\) for a rollout of shape \(8, 2\). Return one number per row"
    for engine in ("gym", "jax") if framework.name == "jax" else ("gym",):
        with pytest.raises(UsageError, match=words):
            next(parts.train(replace(cfg, engine=engine), parts.make_envs, parts.make_agent))


class ManySmallActions(gymnasium.Env):
    """24 actions of a range so small that their joint density is about exp(94); episodes of 5 steps."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-0.01, 0.01, (24,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.ones(2, np.float32), float(action.sum()), self.time == 5, False, {}


def test_filler_rows_of_high_densities_have_no_effect(framework):
    """The ratio of probabilities of a row that is not valid must not overflow: its gradient would be NaN."""
    it = next(proximo.iterations("ppo_continuous_action", env=ManySmallActions, framework=framework.name, distribution="beta",
                                 autoreset="next-step", num_envs=2, num_steps=16, num_minibatches=2, total_timesteps=32))
    assert it.steps < 32 and all(np.isfinite(x).all() for x in it.weights().values())


def test_statistics_that_cannot_be_logged_are_refused(framework):
    """All at once: what is not one number, and a name that the update uses."""
    parts = parts_of("ppo", framework.name)

    def run(stats_of):
        def loss_fn(batch, cfg):
            return (batch.value - batch.ret).sum(), stats_of(batch)

        return next(parts.train(Config(framework=framework.name, num_envs=2, num_steps=8, total_timesteps=16), parts.make_envs,
                                parts.make_agent, loss_fn))

    with pytest.raises(UsageError) as error:
        run(lambda batch: {"rows": batch.value, "word": "text", "grad_norm": batch.value.sum(), "good": batch.value.sum()})
    lines = str(error.value).splitlines()
    assert [any(name in line for line in lines) for name in ("rows=", "word='text'", "grad_norm", "good")] == [True, True, True, False]
    with pytest.raises(UsageError, match="returns no statistics. Return at least one"):
        run(lambda batch: {})


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda loss, stats: loss, "returns .*. Return the loss, and a dict of statistics"),
    (lambda loss, stats: (loss + stats["rows"], {"loss": loss}), "returns the loss=.*. It must be (a tensor|an array) with one number"),
    (lambda loss, stats: (loss.detach() if hasattr(loss, "detach") else None, {"loss": loss}), "the loss=None|has no gradient"),
    (lambda loss, stats: (loss * 1j, {"loss": loss}), r"returns the loss=.* complex64 \(\)\. Return a real number"),
    (lambda loss, stats: (loss, {"mean": loss * 1j}), r"returns mean=.* complex64 \(\)\. Return a real number")])
def test_losses_that_cannot_be_minimised_are_refused(framework, change, sentence):
    """No statistics, one loss per row, one without a gradient, and complex numbers."""
    parts = parts_of("ppo", framework.name)

    def loss_fn(batch, cfg):
        return change((batch.value - batch.ret).sum(), {"rows": batch.value})

    with pytest.raises(UsageError, match=sentence):
        next(parts.train(Config(framework=framework.name, num_envs=2, num_steps=8, total_timesteps=16), parts.make_envs,
                         parts.make_agent, loss_fn))


def test_an_exception_of_a_loss_is_one_sentence_with_its_line(framework):
    parts = parts_of("ppo", framework.name)

    def loss_fn(batch, cfg):
        return {}["weights"], {}

    with pytest.raises(UsageError, match=r"^The loss function raised KeyError: 'weights' \(.*test_train\.py, line \d+\)\. "):
        next(parts.train(Config(framework=framework.name, num_envs=2, num_steps=8, total_timesteps=16), parts.make_envs,
                         parts.make_agent, loss_fn))


def test_a_configuration_with_whole_floats_trains_as_that_of_whole_numbers(framework):
    """1e2 is a float, which the check of configurations accepts; every bit of the weights is the same."""
    numbers = {"num_envs": 2, "num_steps": 8, "total_timesteps": 32, "num_minibatches": 2, "update_epochs": 1,
               "hidden_sizes": (8,)}
    floats = {name: (8.0,) if name == "hidden_sizes" else float(x) for name, x in numbers.items()}
    parts = parts_of("ppo", framework.name)
    (*_, one), (*_, other) = (parts.train(Config(framework=framework.name, **fields), parts.make_envs, parts.make_agent)
                              for fields in (numbers, floats))
    assert one.iteration == other.iteration == 2
    assert all(np.array_equal(other.weights()[name], x) for name, x in one.weights().items())
