"""The programs of examples/walkthrough: what each step claims, against definitions and against the step before it."""

import ast
import importlib.util
import math
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

FOLDER = Path(__file__).parents[2] / "examples" / "walkthrough"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))
GAMMA = 0.99


@pytest.fixture(scope="module")
def load():
    """Return a function that imports a program by its name. They import curves.py as a script does."""
    loaded = {}

    def load_program(name):
        if name not in loaded:
            spec = importlib.util.spec_from_file_location(f"walkthrough_{name}", FOLDER / f"{name}.py")
            loaded[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded[name])
        return loaded[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield load_program
        sys.modules.pop("curves", None)


@pytest.fixture
def short_episodes(monkeypatch):
    """CartPole with a time limit of 20 steps: some episodes end by the pole, others by the limit."""
    monkeypatch.setattr(gym, "make", lambda env_id: gym.wrappers.TimeLimit(CartPoleEnv(), 20))


def rollout(module, T=40, seed=0):
    """A rollout of random numbers: two episodes end, three are cut off, and the last is incomplete."""
    rng = torch.Generator().manual_seed(seed)
    terminated, truncated = torch.zeros(T, dtype=torch.bool), torch.zeros(T, dtype=torch.bool)
    terminated[[4, 21]] = truncated[[9, 10, 33]] = True
    rows = {"obs": torch.zeros(T, 4), "action": torch.zeros(T, dtype=torch.int64), "next_obs": torch.zeros(T, 4),
            "reward": torch.rand(T, generator=rng), "terminated": terminated, "done": terminated | truncated}
    value, next_value = torch.rand(2, T, generator=rng)
    next_value = torch.where(rows["done"], next_value, torch.cat([value[1:], next_value[-1:]]))
    return module.Rollout(**{name: rows[name] for name in module.Rollout._fields}), value, next_value


def gradient(loss, *weights):
    return [x.clone() for x in torch.autograd.grad(loss, weights)]


def test_there_are_ten_programs_that_import_only_torch_numpy_and_gymnasium():
    assert [int(name[:2]) for name in PROGRAMS] == list(range(1, 11))
    for name in (*PROGRAMS, "curves"):
        text = (FOLDER / f"{name}.py").read_text()
        nodes = list(ast.walk(ast.parse(text)))
        found = {a.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for a in node.names}
        found |= {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        allowed = {"torch", "numpy", "gymnasium", "curves"} | ({"matplotlib"} if name == "curves" else set())
        assert found - set(sys.stdlib_module_names) <= allowed, name
        assert len(text.splitlines()) <= (68 if name == "curves" else 190), name


def test_random_policy_scores_about_22(load):
    """Each action has probability 1/2. A uniform policy of CartPole-v1 has a mean return of 22.3."""
    returns = [ret for _, ret in load("01_random").train(1, 4000)]
    assert 19 < np.mean(returns) < 26


def test_returns_to_go_equal_the_definition(load):
    for name in ("02_reinforce", "03_baseline"):
        rows, _, _ = rollout(load(name))
        for t, ret in enumerate(load(name).returns_to_go(rows)):
            end = next((k for k in range(t, 40) if rows.done[k]), 39)
            assert math.isclose(float(ret), sum(GAMMA**(k - t) * float(rows.reward[k]) for k in range(t, end + 1)), rel_tol=1e-5)


def test_reinforce_plays_whole_episodes(load, short_episodes):
    module = load("02_reinforce")
    torch.manual_seed(1)
    rows = module.collect(module.network(2), module.Environment(1))
    assert rows.done[-1] and module.NUM_STEPS <= len(rows.obs) < module.NUM_STEPS + 20


def test_expected_gradient_is_that_of_the_expected_return_with_any_baseline(load):
    """Exact: a sum over both actions of one decision. The baseline lowers the variance."""
    returns, logits = torch.tensor([3.0, 10.0]), torch.tensor([0.3, -0.4], requires_grad=True)
    (exact,) = gradient(-(logits.softmax(0) * returns).sum(), logits)
    probs, variance = logits.detach().softmax(0), []
    for name, baseline in (("02_reinforce", 0.0), ("03_baseline", 2.0), ("03_baseline", float(probs @ returns))):
        module = load(name)
        samples = torch.stack([gradient(module.policy_loss(module.log_prob(logits[None], torch.tensor([a])),
                                                           returns[a] - baseline), logits)[0] for a in (0, 1)])
        mean = (probs[:, None] * samples).sum(0)
        assert torch.allclose(mean, exact, atol=1e-6)
        variance.append(float((probs[:, None] * (samples - mean) ** 2).sum()))
    assert variance == sorted(variance, reverse=True)


def n_step_definition(rows, value, next_value, t, n):
    total = 0.0
    for k in range(t, 40):
        total += GAMMA ** (k - t) * float(rows.reward[k])
        if rows.done[k] or k == t + n - 1 or k == 39:
            return total + GAMMA ** (k - t + 1) * float(next_value[k]) * (not rows.terminated[k]) - float(value[t])
    raise AssertionError


@pytest.mark.parametrize("n", [1, 3, 16, 100])
def test_n_step_advantages_equal_the_definition(load, n):
    """Nothing follows a terminated episode; the value of the true next observation follows a time limit."""
    module = load("04_bootstrap")
    rows, value, next_value = rollout(module)
    expected = [n_step_definition(rows, value, next_value, t, n) for t in range(40)]
    np.testing.assert_allclose(module.n_step_advantages(rows, value, next_value, n), expected, rtol=1e-4, atol=1e-5)


def test_gae_is_the_weighted_average_of_all_n_step_advantages(load, monkeypatch):
    """Schulman et al. 2016, eq. 16. lambda = 0 is n = 1 of step 4, lambda = 1 is its largest n."""
    bootstrap, module = load("04_bootstrap"), load("05_gae")
    rows, value, next_value = rollout(module)
    every = torch.stack([bootstrap.n_step_advantages(rows, value, next_value, n) for n in range(1, 400)])
    for lam in (0.0, 0.7, 0.95, 1.0):
        monkeypatch.setattr(module, "GAE_LAMBDA", lam)
        weights = torch.tensor([(1 - lam) * lam**k for k in range(398)] + [lam**398])
        np.testing.assert_allclose(module.gae(rows, value, next_value), (weights[:, None] * every).sum(0), atol=1e-5)


@pytest.mark.parametrize("name", ["04_bootstrap", "05_gae", "06_clip", "07_minibatches", "08_vector", "09_details"])
def test_what_follows_a_time_limit_is_not_the_next_episode(load, short_episodes, name):
    module = load(name)
    torch.manual_seed(1)
    envs = (getattr(module, "Environments", None) or module.Environment)(1)
    rows = module.collect(module.network(2), envs)
    same = (rows.next_obs[:-1] == rows.obs[1:]).all(-1)
    assert torch.equal(same, ~rows.done[:-1])
    assert rows.terminated.any() and (rows.done & ~rows.terminated).any(), "the environment tests nothing"
    fallen = rows.next_obs[..., 2].abs() > math.radians(12)
    assert torch.equal(rows.terminated, fallen)  # 20 steps are too few to leave the track


def test_the_gradient_stops_only_outside_the_clip_range_and_where_it_would_go_further(load):
    """Figure 1 of the paper. At ratio 1 the gradient is that of step 5."""
    module, before = load("06_clip"), load("05_gae")
    for ratio, advantage, slope in ((1.0, 2.0, -2.0), (1.0, -2.0, 2.0), (1.3, 2.0, 0.0), (1.3, -2.0, 2.6),
                                    (0.7, 2.0, -1.4), (0.7, -2.0, 0.0)):
        new = torch.tensor([math.log(ratio)], requires_grad=True)
        weight = torch.tensor([advantage])
        (ours,) = gradient(module.policy_loss(new, torch.zeros(1), weight, 0.2), new)
        assert math.isclose(float(ours), slope, abs_tol=1e-5)
        (unclipped,) = gradient(module.policy_loss(new, torch.zeros(1), weight, math.inf), new)
        assert math.isclose(float(unclipped), -ratio * advantage, rel_tol=1e-5)
        if ratio == 1.0:
            assert torch.equal(ours, *gradient(before.policy_loss(new, weight), new))
        assert torch.equal(*(x[0] for x in (gradient(load(name).policy_loss(new, torch.zeros(1), weight), new)
                                            for name in ("07_minibatches", "09_details"))))


def test_each_epoch_uses_every_row_once_in_a_new_order(load):
    module = load("07_minibatches")
    torch.manual_seed(1)
    rows = list(module.minibatches(256))
    assert {len(x) for x in rows} == {64} and len(rows) == 16
    epochs = torch.cat(rows).reshape(4, 256)
    assert torch.equal(epochs.sort(1).values, torch.arange(256).expand(4, -1))
    assert not torch.equal(epochs[0], epochs[1])


def test_one_environment_is_step_seven(load, monkeypatch):
    module = load("08_vector")
    monkeypatch.setattr(module, "NUM_ENVS", 1)
    monkeypatch.setattr(module, "NUM_STEPS", 256)
    episodes = module.train(3, 1024)
    assert len(episodes) > 20 and episodes == load("07_minibatches").train(3, 1024)


def test_without_details_step_nine_is_step_eight(load):
    module = load("09_details")
    before = load("08_vector").train(2, 768)
    assert module.train(2, 768, ()) == before
    for name in module.DETAILS:
        assert module.train(2, 768, (name,)) != before, name


def test_the_loss_of_all_details_is_that_of_the_single_file(load):
    module, single = load("09_details"), load("10_single_file").ppo
    logits, value, old_value, target, advantage, old = torch.randn(
        7, 64, generator=torch.Generator().manual_seed(1))[:6]
    logits = torch.stack([logits, -logits], 1)
    action = (advantage > 0.3).long()
    logprob, entropy = single.logprob_and_entropy(logits, action)
    cfg = single.Config(ent_coef=module.ENT_COEF, vf_coef=module.VF_COEF, clip_coef=module.CLIP)
    loss, _ = single.ppo_loss(logprob, entropy, value, old, old_value, advantage, target, cfg)
    ours = module.policy_loss(module.log_prob(logits, action), old, advantage) \
        - module.ENT_COEF * module.entropy(logits) + module.VF_COEF * module.clipped_value_loss(value, old_value, target)
    assert torch.allclose(ours, loss)
    normalized = module.normalize(advantage)
    assert abs(normalized.mean()) < 1e-6 and math.isclose(float(normalized.std()), 1, rel_tol=1e-5)


def test_orthogonal_weights_and_the_norm_of_the_gradient(load):
    module = load("09_details")
    actor = module.network(2)
    module.orthogonal(actor, 0.01)
    for layer, gain in ((actor[2], math.sqrt(2)), (actor[4], 0.01)):
        size = len(layer.weight)
        assert torch.allclose(layer.weight @ layer.weight.T, gain**2 * torch.eye(size), atol=1e-5)
        assert not layer.bias.any()
    weight = torch.zeros(4, requires_grad=True)
    for factor, norm in ((100.0, 0.5), (0.01, 0.02)):
        module.descend(torch.optim.SGD([weight], 1.0), (weight * factor).sum(), 0.5)
        assert math.isclose(float(weight.grad.norm()), norm, rel_tol=1e-4)


def test_annealing_ends_at_zero(load, monkeypatch):
    """The step size of each rollout, as Adam gets it."""
    module, rates = load("09_details"), []
    monkeypatch.setattr(module, "descend", lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    module.train(1, 1024, ("annealing",))
    np.testing.assert_allclose(rates[::16], module.LEARNING_RATE * np.array([1, 0.75, 0.5, 0.25]))
    rates.clear()
    module.train(1, 512, ())
    assert set(rates) == {module.LEARNING_RATE}


def test_a_grey_curve_keeps_its_own_steps_and_nothing_is_lost_without_an_episode(load, tmp_path, monkeypatch):
    """It was stretched over the steps of the new one. A run too short for an episode emptied the file of an earlier one."""
    run = load("curves").run
    monkeypatch.setenv("WALKTHROUGH_FOLDER", str(tmp_path))
    for name, steps, before in (("one", 100, ""), ("two", 400, "one")):
        monkeypatch.setenv("WALKTHROUGH_STEPS", str(steps))
        figure = run(name, {"x": lambda seed, total: [(20, 20.0), (total, 50.0)]}, before)
    assert [line.get_xdata()[-1] for line in figure.axes[0].lines] == [100, 400]
    kept = (tmp_path / "two.csv").read_text()
    with pytest.raises(SystemExit, match="No episode has ended within 400 steps. Choose a larger WALKTHROUGH_STEPS"):
        run("two", {"x": lambda seed, total: []})
    assert (tmp_path / "two.csv").read_text() == kept
