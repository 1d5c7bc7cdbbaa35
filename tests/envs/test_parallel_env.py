"""Games of several agents, checked against the same games played by hand, agent by agent."""

import re
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.calls import call_envs
from proximo.envs.custom.suite import make_complete
from proximo.envs.normalize import make_normalizer
from proximo.envs.parallel_env import from_parallel_env
from proximo.errors import EnvError, UsageError
from proximo.models.evaluate import frames
from tests.support.games import Corridor
from tests.support.play import random_actions
from tests.support.runs import rows, same_logs, same_weights

SHORT = {"num_envs": 6, "num_steps": 16, "num_minibatches": 2, "env_id": "Corridor-v0", "anneal_lr": False}


def make_games(kind=Corridor, rows=6, **kwargs):
    return from_parallel_env(partial(kind, **kwargs))(Config(), list(range(10, 10 + rows)))


@pytest.mark.parametrize(("agents", "labels"), [
    (["red", "blue"], ("red", "blue")), ([0, 1], ("0", "1")), ([(0, 0), (0, 1)], ("agent0", "agent1")),
    ([1, "1"], ("agent0", "agent1")), (['the "first"', "b"], ("agent0", "agent1"))])
def test_the_columns_of_agents_can_be_told_apart(agents, labels, tmp_path):
    """Places as names have commas, which moved every column after them."""
    class Named(Corridor):
        def __init__(self):
            super().__init__(agents=2)
            self.possible_agents = list(agents)

    assert make_games(Named).players == labels
    proximo.train(Config(**SHORT, total_timesteps=96, logger="none", run_dir=str(tmp_path / "run")),
                  make_envs=from_parallel_env(Named))
    assert f"charts/episodic_return-{labels[1]}" in rows(tmp_path / "run", "metrics.csv")[-1]
    assert {row["player"] for row in rows(tmp_path / "run", "episodes.csv")} == {*labels}


class Lingering(Corridor):
    """Agents that have ended stay in `agents`, which PettingZoo does not allow."""

    def step(self, actions):
        self.agents = list(actions)
        answer = super().step(actions)
        self.agents = list(self.possible_agents)
        return answer


def play_by_hand(game, seed):
    """Yield {agent: (observation, reward, terminated, truncated, ends)} of every step; takes {agent: action}.

    A game begins again when nobody is left; agents then have what reset() returned, and those that acted last also what
    they saw last, under "last".
    """
    seen, _ = game.reset(seed=seed)
    answer = {a: {"obs": seen[a], "first": True} for a in game.agents}
    while True:
        actions = yield answer
        acting = list(game.agents)
        seen, rewards, terminated, truncated, _ = game.step({a: actions[a] for a in acting})
        answer = {a: {"reward": rewards[a], "terminated": terminated[a], "truncated": truncated[a] and not terminated[a],
                      "last": seen[a], "obs": seen[a] if a in game.agents else None} for a in acting}
        answer |= {a: {"obs": seen[a], "first": True} for a in game.agents if a not in acting}
        if not game.agents:
            seen, _ = game.reset()
            for a in game.agents:
                answer.setdefault(a, {})["first"] = True
                answer[a]["obs"] = seen[a]


@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("length", [4, 15])
def test_rows_are_those_of_the_agents(late, length):
    """Rewards, ends, last and first observations, filler rows, and the returns and lengths of episodes."""
    envs = make_games(late=late, length=length)
    hands = [play_by_hand(Corridor(late=late, length=length), seed) for seed in (10, 13)]
    answers, step, rng = [next(hand) for hand in hands], envs.reset(), np.random.default_rng(0)
    assert np.array_equal(step.first, [True, True, not late] * 2) and step.valid.all() and not step.reward.any()
    returns, lengths, seen = np.zeros(6), np.zeros(6), set()
    agents = Corridor().possible_agents
    for _ in range(120):
        action = rng.integers(0, 3, 6)
        answers = [hand.send(dict(zip(agents, action[3 * g:]))) for g, hand in enumerate(hands)]
        step = envs.step(action)
        for row in range(6):
            expected = answers[row // 3].get(agents[row % 3], {})
            acted = "reward" in expected
            returns[row] += expected.get("reward", 0)
            lengths[row] += acted
            over = acted and (expected["terminated"] or expected["truncated"])
            found = (step.valid[row], step.first[row], step.reward[row], step.terminated[row], step.truncated[row],
                     step.episode.finished[row])
            assert found == (acted, expected.get("first", False), expected.get("reward", 0),
                             acted and expected["terminated"], acted and expected["truncated"], over)
            obs = expected.get("obs")
            assert np.array_equal(step.obs[row], np.zeros(3) if obs is None else obs)
            if over:
                assert np.array_equal(step.final_obs[row], expected["last"])
                assert (step.episode.ret[row], step.episode.length[row]) == (returns[row], lengths[row])
                returns[row] = lengths[row] = 0
            seen.add((acted, over, obs is None))
    # a step within an episode, an end before that of the game, an end with the game, a row without an agent
    assert {(True, False, False), (True, True, False), (False, False, True)} <= seen
    assert length == 4 or (True, True, True) in seen


class Returning(Corridor):
    """An agent leaves after three steps, and comes back two steps later; actions of others than `agents` are an error."""

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        if self.time == 3 and "agent_0" in self.agents:
            terminated["agent_0"] = True
            self.agents.remove("agent_0")
        if self.time == 5 and "agent_0" not in self.agents:
            self.agents.insert(0, "agent_0")
            observations |= self.answer(["agent_0"])[0]
        return observations, rewards, terminated, truncated, infos


def test_an_agent_that_comes_back_begins_another_episode():
    envs = make_games(Returning, size=99, rows=3)
    envs.reset()
    found = []
    for _ in range(8):
        step = envs.step(np.ones(3, np.int64))
        found.append((bool(step.valid[0]), bool(step.first[0]), bool(step.episode.finished[0])))
    acting = (True, False, False)
    assert found == [acting, acting, (True, False, True), (False, False, False), (False, True, False), *[acting] * 3]


def test_statistics_are_those_of_the_observations_that_are_acted_on():
    """Not of rows of agents that have not joined or are out; a truncated agent's last observation is normalised."""
    cfg = Config(norm_obs=True, norm_reward=True)
    envs = make_games(Cut, late=3, size=99)
    normalizer, rng = make_normalizer(cfg, envs), np.random.default_rng(0)
    raw = envs.reset()
    seen, raw = [raw.obs[raw.first].copy()], raw._replace(obs=raw.obs.copy())
    statistics, _ = normalizer.reset(normalizer.start(), raw)
    for _ in range(60):
        raw = envs.step(rng.integers(0, 3, 6))
        over = raw.terminated | raw.truncated
        seen.append(raw.obs[raw.first | (raw.valid & ~over)].copy())
        statistics, step = normalizer.step(statistics, raw)
        expected = (raw.final_obs - statistics.obs.mean) / np.sqrt(statistics.obs.var + 1e-8)
        np.testing.assert_allclose(step.final_obs[raw.truncated], expected[raw.truncated].clip(-10, 10), rtol=1e-5)
    seen = np.concatenate(seen)
    np.testing.assert_allclose(statistics.obs.mean, seen.mean(0), rtol=1e-3)
    assert statistics.obs.count == pytest.approx(len(seen), abs=1)


class Cut(Corridor):
    """The first agent is cut off by a time limit of its own, before the game ends."""

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        if self.time == 6:
            truncated["agent_0"] = True
            self.agents.remove("agent_0")
        return observations, rewards, terminated, truncated, infos


def test_agents_that_stay_listed_after_their_end_do_not_act():
    one, other, rng = make_games(), make_games(Lingering), np.random.default_rng(0)
    same_from_here(one, other, one.reset(), other.reset(), rng, 100)


def same_from_here(one, other, step, same, rng, steps):
    """Check that two sets of games make the same steps with the same random actions."""
    for _ in range(steps):
        over = step.terminated | step.truncated
        for name in ("obs", "first", "mask", "reward", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(step, name), getattr(same, name))
        np.testing.assert_array_equal(step.final_obs[over], same.final_obs[over])
        np.testing.assert_array_equal(step.episode.ret[over], same.episode.ret[over])
        action = random_actions(one, step, rng)
        step, same = one.step(action), other.step(action)


@pytest.mark.parametrize("masked", ["obs", "info"])
def test_masks(masked):
    """The game itself refuses actions that its mask forbids. Agents leave it where their mask forbids one; then all are
    allowed."""
    envs, rng = make_games(masked=masked, size=3), np.random.default_rng(0)
    step, forbidden = envs.reset(), 0
    for _ in range(100):
        assert envs.obs_shape == (3,) and step.mask.any(1).all()
        forbidden += (~step.mask).sum()
        step = envs.step(random_actions(envs, step, rng))
        assert step.mask[~step.valid & ~step.first].all()  # of agents that are out
    assert forbidden > 30


def test_an_agent_that_waits_without_a_choice_is_told_of_the_adapter():
    class Waiting(Corridor):
        def answer(self, agents):
            rows, _ = super().answer(agents)
            return rows, {a: {"action_mask": np.full(3, a == "agent_0")} for a in agents}

    with pytest.raises(EnvError, match=r"step 0, agent agent_1: action_mask allows no action\. .* leads there\. An agent that "
                       r"waits for its turn needs a choice, too \(docs/players\.md\)"):
        make_games(Waiting).reset()


@pytest.mark.parametrize("others", [{}, {"late": 3}, {"masked": "obs"}, {"masked": "info"}, {"kind": Lingering}], ids=str)
def test_state_continues_exactly(others):
    """Also while some agents have ended and others have not joined."""
    envs, other, rng = make_games(**others), make_games(**others), np.random.default_rng(1)
    assert envs.keeps_state
    step = envs.reset()
    for _ in range(5):
        step = envs.step(random_actions(envs, step, rng))
    state = envs.state()
    other.load(state)
    action = random_actions(envs, step, rng)
    same_from_here(envs, other, envs.step(action), other.step(action), rng, 60)


def test_a_state_that_cannot_be_saved_is_not_kept():
    class Opaque(Corridor):
        def __init__(self):
            super().__init__()
            self.engine = object()

    envs = from_parallel_env(Opaque)(Config(), [1, 2, 3])
    assert not envs.keeps_state and envs.state() is None


class Faulty(Corridor):
    """Does one thing wrong after two steps."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def reset(self, seed=None, options=None):
        answer = super().reset(seed=seed)
        if self.fault == "nobody":
            self.agents = []
        return answer

    def step(self, actions):
        if self.time == 2 and self.fault == "raises":
            raise RuntimeError("the engine is gone")
        answer = list(super().step(actions))
        if self.time == 2:
            fault_of = {"four": lambda: answer.pop(), "no obs": lambda: answer[0].pop("agent_1"),
                        "no reward": lambda: answer[1].pop("agent_1"), "text": lambda: answer[1].update(agent_1="one"),
                        "nan": lambda: answer[0]["agent_1"].fill(np.nan), "shape": lambda: answer[0].update(agent_1=[1, 2]),
                        "nan reward": lambda: answer[1].update(agent_1=np.nan), "gone": lambda: self.agents.remove("agent_1"),
                        "terminated": lambda: answer[2].update(agent_1=None),
                        "mask": lambda: answer[4].update(agent_1={"action_mask": [1, 1, 1]}), "raises": lambda: None,
                        "all": lambda: answer[2].update(__all__=True), "stranger": lambda: self.agents.append("ghost")}
            fault_of[self.fault]()
        return tuple(answer)


@pytest.mark.parametrize(("fault", "message"), [
    ("raises", r"game 1 \(corridor\), step 3: step raised RuntimeError: the engine is gone"),
    ("four", "step 2: step returned a tuple; it must return five dicts"),
    ("no obs", "step 2, agent agent_1: step returned nothing for it"),
    ("no reward", "step 2, agent agent_1: step returned nothing for it"), ("text", "agent agent_1: reward is 'one'; it must be a number"),
    ("all", "step 2: __all__ in `agents`, or in what step returned"), ("stranger", "step 2: ghost in `agents`"),
    ("nan", "agent agent_1: observation is not finite"), ("nan reward", "agent agent_1: reward is nan"),
    ("shape", r"agent agent_1: observation"), ("gone", "agent_1: it is no longer in `agents`, and it was neither"),
    ("terminated", "agent agent_1: terminated is None"), ("mask", "agent agent_1: action_mask was returned, and the first"),
    ("nobody", r"game 1 \(corridor\), step 0: `agents` is empty after reset")])
def test_faults_name_the_game_and_the_agent(fault, message):
    made = iter([Corridor(), Faulty(fault)])
    with pytest.raises(EnvError, match=message):
        envs = from_parallel_env(lambda: next(made))(Config(), [1, 2, 3, 4, 5, 6])
        envs.reset()
        for _ in range(4):
            envs.step(np.ones(6, np.int64))


class OtherSpace(Corridor):
    def action_space(self, agent):
        return spaces.Discrete(2 + (agent == "agent_0"))


class Twice(Corridor):
    def __init__(self):
        super().__init__()
        self.possible_agents = ["a", "a"]


class Attribute(Corridor):
    action_space = spaces.Discrete(3)


class Nothing(Corridor):
    def observation_space(self, agent):
        return None


class Turns(Corridor):
    def agent_iter(self):
        """Yield whose turn it is, as an AECEnv does."""


@pytest.mark.parametrize(("make_game", "message"), [
    (OtherSpace, r"agent_1 has the action space Discrete\(2\), and agent_0 has Discrete\(3\).*pad_action_space_v0"),
    (Turns, r"corridor is an AECEnv .* or the class Turns in docs/players\.md"), (lambda: 3, "returned int, which lacks possible_agents"),
    (partial(Corridor, agents=0), r"possible_agents is \[\]. Set it to a list"), (Twice, r"possible_agents is \['a', 'a'\]"),
    (Attribute, "corridor.action_space is an attribute. Make it a method"), (Nothing, "'agent_0'.* returned NoneType. Return a"),
    (partial(Corridor, agents=4), "num_envs=6 is not divisible by the 4 agents of corridor.*Use 4 or 8"),
    (partial(lambda one: one, Corridor()), "two of the 2 games are the same object")])
def test_other_functions_are_refused(make_game, message):
    with pytest.raises(UsageError, match=message):
        from_parallel_env(make_game)(Config(), list(range(6)))


@pytest.mark.parametrize("setting", [{"frame_stack": 2}, {"env_workers": 2}, {"engine": "envpool"}, {"info_metrics": ["x"]},
                                     {"env_wrappers": ["a:B"]}, {"autoreset": "next-step"}], ids=str)
def test_settings_without_effect_are_refused(setting, tmp_path):
    with pytest.raises(UsageError, match=f"{next(iter(setting))}=.* has no effect on environments of from_parallel_env"):
        proximo.train("ppo", **SHORT, **setting, make_envs=from_parallel_env(Corridor), run_dir=tmp_path / "run")


def test_a_game_as_env_is_told_where_it_belongs(tmp_path):
    with pytest.raises(UsageError, match=r"made a Corridor; a gymnasium.Env is needed. .*from_parallel_env\(FUNCTION\)"):
        proximo.train("ppo", env=Corridor, run_dir=tmp_path / "run")


def test_a_game_in_place_of_a_function_is_refused():
    with pytest.raises(UsageError, match="pass a function that makes a game"):
        from_parallel_env(Corridor())


@pytest.mark.parametrize("how", [{}, {"framework": "jax"}, {"recurrent": "gru"}, {"norm_obs": True, "norm_reward": True},
                                 {"framework": "jax", "recurrent": "lstm"}])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, how):
    """With agents that end early and one that joins late. Evaluations play whole games."""
    make_envs = from_parallel_env(partial(Corridor, late=2, masked="info"))
    given = {**SHORT, **how, "make_envs": make_envs, "checkpoint_every": 1}
    whole = proximo.train("ppo", **given, total_timesteps=96 * 4, run_dir=tmp_path / "whole")
    proximo.train("ppo", **given, total_timesteps=96 * 2, run_dir=tmp_path / "part")
    proximo.resume(tmp_path / "part", make_envs=make_envs, total_timesteps=96 * 4)
    assert same_weights(whole, tmp_path / "part") and same_logs(whole, tmp_path / "part")
    found = proximo.evaluate(whole, episodes=4, make_envs=make_envs)
    assert found.players == tuple(Corridor().possible_agents) and len(found.rows) % 3 == 0


def test_evaluations_during_training_play_whole_games(tmp_path):
    """The arguments of the game decide how many agents there are."""
    make_envs = from_parallel_env(Corridor)
    run = proximo.train("ppo", **SHORT | {"num_envs": 10}, make_envs=make_envs, env_kwargs={"agents": 5},
                        total_timesteps=160, eval_every=160, eval_episodes=5, run_dir=tmp_path / "run")
    assert "eval/return_mean" in (run / "metrics.csv").read_text()
    assert len(proximo.evaluate(run, episodes=5, make_envs=from_parallel_env(Corridor)).players) == 5


def test_evaluations_play_as_few_games_as_they_need(tmp_path):
    make_envs = from_parallel_env(Corridor)
    run = proximo.train("ppo", **SHORT, make_envs=make_envs, total_timesteps=96, run_dir=tmp_path / "run")
    counts = [len(proximo.evaluate(run, episodes=n, make_envs=make_envs).rows) for n in (1, 3, 4, 6, 9)]
    assert counts == [3, 3, 6, 6, 9]


def test_a_video_shows_whole_games(tmp_path):
    """Its pictures have the time of the game. The first agent leaves at its fourth step, the others play on."""
    make_envs = from_parallel_env(partial(Cut, size=99, length=10))
    run = proximo.train("ppo", **SHORT, make_envs=make_envs, total_timesteps=96, run_dir=tmp_path / "run")
    model = proximo.load(run)
    envs = make_envs(Config(), [1, 2, 3])
    times = [int(picture[0, 0, 0]) for picture in frames(model, envs, True, episodes=range(2))]
    assert times == [*range(10), *range(10)]


def test_agents_learn_to_stay_in_the_middle(tmp_path):
    """The best mean is -0.4: one step at distance 1 from a beginning at distance 2. Agents that do not move have -18."""
    make_envs = from_parallel_env(Corridor)
    run = proximo.train("ppo", make_envs=make_envs, env_id="Corridor-v0", num_envs=12, num_steps=64, learning_rate=2e-3,
                        total_timesteps=40_000, run_dir=tmp_path / "run")
    assert np.mean(proximo.evaluate(run, episodes=36, make_envs=make_envs).returns) > -3


def test_methods_of_games_are_called():
    envs = make_complete(from_parallel_env(Corridor), Config(), list(range(6)))
    envs.reset()
    assert call_envs(envs, "set_boost", 100.0) == [100.0, 100.0]
    assert (envs.step(np.ones(6, np.int64)).reward > 50).all()
    with pytest.raises(UsageError, match="corridor has no method jump"):
        call_envs(envs, "jump")
    with pytest.raises(EnvError, match=r"game 0 \(corridor\), step 1: set_boost\(\) raised TypeError"):
        call_envs(envs, "set_boost", 1, 2)


def test_pictures():
    envs = make_games()
    envs.reset()
    assert envs.render().shape == (6, 8, 3) and envs.render_fps == 7


@pytest.mark.parametrize("name", ["butterfly.knights_archers_zombies_v11", "sisl.multiwalker_v9"])
def test_games_of_pettingzoo(name):
    """Agents of the first game are killed one after the other; those of the second one all fall at once."""
    pytest.importorskip("pettingzoo")
    pytest.importorskip("Box2D")
    import importlib

    module = importlib.import_module(f"pettingzoo.{name}")
    agents = len(module.parallel_env().possible_agents)
    envs = make_complete(from_parallel_env(module.parallel_env), Config(), list(range(2 * agents)))
    step, rng, ended = envs.reset(), np.random.default_rng(0), 0
    for _ in range(400):
        step = envs.step(random_actions(envs, step, rng))
        ended += step.episode.finished.sum()
    assert ended >= agents
    envs.close()


class Leaving(Corridor):
    """The second agent ends in the fifth step, and the game goes on without it."""

    def step(self, actions):
        obs, rewards, _, truncated, infos = super().step(actions)
        ends = {agent: agent == self.possible_agents[1] and self.time >= 5 for agent in actions}
        self.agents = [agent for agent in actions if not ends[agent]]
        return obs, rewards, ends, dict.fromkeys(truncated, False), infos


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_no_step_is_taken_for_an_agent_that_is_absent_for_a_whole_rollout(framework):
    """Each minibatch is one agent. From the second iteration on, all but the one of the second agent are learned."""
    name = {"torch": "step", "jax": ".step"}[framework]
    steps = [int(it.snapshot()["adam"][name]) for it in proximo.iterations(
        "ppo", make_envs=from_parallel_env(Leaving), framework=framework, recurrent="lstm", num_envs=3, num_minibatches=3,
        num_steps=16, update_epochs=4, total_timesteps=144, env_id="Leaving-v0")]
    assert steps == [12, 20, 28]


class MultiAgentEnv(gymnasium.Env):
    """As RLlib has it."""

    observation_space = action_space = observation_spaces = action_spaces = None
    agents, possible_agents = [], []


class OfRLlib(MultiAgentEnv):
    def __init__(self):
        self.agents = self.possible_agents = ["a", "b"]


@pytest.mark.parametrize("given", [{"env": OfRLlib}, {"env": OfRLlib()}, {"env": lambda: OfRLlib()},
                                   {"make_envs": from_parallel_env(OfRLlib)}, {"env": OfRLlib, "num_envs": 2}])
def test_a_multi_agent_env_of_rllib_is_told_of_the_adapter(given):
    with pytest.raises(UsageError, match="^OfRLlib is a MultiAgentEnv of RLlib. .*from_parallel_env.* docs/add-an-environment.md"):
        proximo.train(**given)
    with pytest.raises(UsageError, match="^OfRLlib is a MultiAgentEnv of RLlib"):
        proximo.train("ppo", **given)


def test_the_adapter_of_the_page_for_rllib():
    """Agents that end early, that join, entries for __all__ and __common__, and infos and rewards that are missing."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "add-an-environment.md").read_text()
    code, = [block for block in re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M) if "class FromRLlib" in block]
    names = {}
    exec(code.partition("\nrun = ")[0], names)
    space, answers = spaces.Box(-1, 1, (2,), np.float32), iter([
        ({"a": [1, 0], "b": [2, 0]}, {"a": 1.0}, {"__all__": False, "b": True}, {"__all__": False}, {"__common__": {}}),
        ({"a": [3, 0], "c": [4, 0]}, {"a": 2.0}, {"__all__": False}, {"__all__": False}, {"a": {"x": 1}}),
        ({"a": [5, 0], "c": [6, 0]}, {"a": 3.0, "c": 4.0}, {"__all__": False}, {"__all__": True}, {})])

    class Scripted(MultiAgentEnv):
        possible_agents = ["a", "b", "c"]
        observation_spaces = dict.fromkeys(possible_agents, space)
        action_spaces = dict.fromkeys(possible_agents, spaces.Discrete(2))

        def reset(self, *, seed=None, options=None):
            return {"a": [0, 0], "b": [0, 0]}, {"__common__": {}}

        def step(self, actions):
            obs, *rest = next(answers)
            return {agent: np.array(x, np.float32) for agent, x in obs.items()}, *rest

    game = names["FromRLlib"](Scripted())
    assert game.observation_space("c") == space and game.reset()[1] == {"a": {}, "b": {}} and game.agents == ["a", "b"]
    _, rewards, terminated, truncated, infos = game.step({"a": 0, "b": 1})
    assert rewards == {"a": 1.0, "b": 0.0} and terminated == {"a": False, "b": True} and not any(truncated.values())
    assert game.agents == ["a"] and infos == {"a": {}, "b": {}}
    _, rewards, terminated, truncated, infos = game.step({"a": 0})
    assert game.agents == ["a", "c"] and infos == {"a": {"x": 1}, "c": {}}
    _, rewards, terminated, truncated, infos = game.step({"a": 0, "c": 0})
    assert game.agents == [] and truncated == {"a": True, "c": True} and rewards == {"a": 3.0, "c": 4.0}
