"""docs/coming-from.md against the libraries that it compares with, where they are installed."""

import ast
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import proximo
from proximo.cli.flags import ALIASES, parse_flags
from proximo.cli.main import main
from proximo.envs.vector_env import GymVectorEnvs
from proximo.models.model import Model
from proximo.runs.settings.peer_names import ADVICE, RLLIB, ROBOTS, ZOO

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "coming-from.md").read_text()


@pytest.mark.parametrize(("given", "fields"), [
    ("batch_size", ["num_minibatches"]), ("n_envs", ["num_envs"]), ("n_steps", ["num_steps"]),
    ("n_epochs", ["update_epochs"]), ("clip_range", ["clip_coef"]), ("clip_range_vf", ["clip_vloss"]),
    ("normalize_advantage", ["norm_adv"]), ("use_sde", ["distribution"]), ("callback", ["callbacks"]),
    ("net_arch", ["hidden_sizes"]), ("policy_kwargs", ["hidden_sizes", "make_agent"]), ("policy", ["model", "make_agent"]),
    ("verbose", ["logger"]), ("tensorboard_log", ["run_dir"])])
def test_a_name_of_stable_baselines3_leads_to_ours(given, fields):
    """Each name in the advice is a field of the configuration or an argument of proximo.train."""
    known = {*proximo.Config.__dataclass_fields__, *inspect.signature(proximo.train).parameters}
    with pytest.raises(proximo.UsageError, match=f"^{given} is not a field of this variant. ") as error:
        proximo.train("ppo", **{given: 1})
    named = re.findall(r"\b([a-z]\w+)=", str(error.value))
    assert [name for name in fields if name not in named] == [] and {*named} <= known, named
    assert str(error.value).endswith("(docs/coming-from.md).")


@pytest.mark.parametrize("name", [*RLLIB, *ROBOTS, *ZOO])
def test_a_name_of_another_library_leads_to_ours(name):
    known = {*proximo.Config.__dataclass_fields__, *inspect.signature(proximo.train).parameters}
    with pytest.raises(proximo.UsageError, match=f"^{name} is not a field of this variant. ") as error:
        proximo.train("ppo", **{name: 1})
    assert str(error.value).endswith("(docs/coming-from.md).")
    assert {*re.findall(r"\b([a-z]\w+)=", str(error.value))} <= known
    assert all(hasattr(proximo.callbacks, used) for used in re.findall(r"callbacks\.(\w+)", str(error.value)))


@pytest.mark.parametrize(("flag", "advice"), [
    ("--save-model", "Every run saves its model in RUN/model"), ("--upload-model", "proximo push RUN hub:USER/NAME"),
    ("--hf-entity x", "proximo push RUN hub:USER/NAME")])
def test_a_flag_of_cleanrl_that_does_not_exist_leads_to_ours(flag, advice, capsys):
    """The page names these three; similar flags of ours, such as --model, do something else."""
    assert f"`{flag.split()[0]}`" in PAGE and main(["train", "ppo", *flag.split()]) == 2
    said = capsys.readouterr().err
    assert f"{flag.split()[0]} is not a flag of this variant. {advice}" in said and "Did you mean" not in said


@pytest.mark.parametrize("name", ADVICE)
def test_the_command_line_names_flags(name):
    """Advice for Python named arguments there, such as num_steps=... ."""
    if name.replace("_", "-") in ALIASES:
        return
    with pytest.raises(proximo.UsageError) as error:
        parse_flags(proximo.Config, [f"--{name}", "1"])
    sentence = str(error.value).partition("this variant.")[2]
    fields = {*proximo.Config.__dataclass_fields__}
    assert {*re.findall(r"\b([a-z]\w+)=", sentence)} & fields == set()
    flags = {flag.replace("-", "_") for flag in re.findall(r"--(?:no-)?([a-z][a-z-]*)", sentence)}
    assert flags <= fields | {"seeds"}, sentence  # of proximo sweep


def test_what_a_user_never_sets_is_not_suggested(capsys):
    for name in ("iteration_shif", "iteration"):
        with pytest.raises(proximo.UsageError, match=f"^{name} is not a field") as error:
            proximo.train("ppo", **{name: 1})
        assert main(["train", "ppo", f"--{name.replace('_', '-')}", "1"]) == 2
        assert "iteration_shift" not in str(error.value) and "iteration-shift" not in capsys.readouterr().err


def test_a_schedule_that_is_a_list_of_points_leads_to_the_page():
    """As in RLlib."""
    with pytest.raises(proximo.UsageError, match="^learning_rate is a list of points. Use a number, .*docs/python.md"):
        proximo.train("ppo", learning_rate=[[0, 1e-3], [10_000, 1e-5]])


@pytest.mark.parametrize("field", ["learning_rate", "clip_coef"])
def test_a_schedule_that_is_a_function_leads_to_the_page(field):
    method = f"{field}_at(self, iteration)"
    with pytest.raises(proximo.UsageError, match=re.escape(method) + ".*docs/python.md") as error:
        proximo.train("ppo", gamma="x", **{field: lambda left: 3e-4 * left})
    assert hasattr(proximo.Config, f"{field}_at") and "gamma='x'" in str(error.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return proximo.train("ppo", total_timesteps=512, norm_obs=True, logger="none", run_dir=tmp_path_factory.mktemp("runs") / "run")


def test_an_argument_of_evaluate_policy_leads_to_ours(run):
    with pytest.raises(proximo.UsageError, match="^n_eval_episodes is not an argument of evaluate. Did you mean episodes"):
        proximo.evaluate(run, n_eval_episodes=3)


def test_what_the_page_says_of_a_model(run):
    """Weights out and in, the statistics of normalisation, masks, and the files that Monitor and EvalCallback would write."""
    model, other, obs = proximo.load(run), proximo.load(run), np.ones((2, 4), np.float32)
    weights = {name: x.clone() for name, x in model.module.state_dict().items()}
    model.module.load_state_dict({name: 0 * x for name, x in weights.items()})
    assert not model.value(obs).any() and other.value(obs).any()
    model.module.load_state_dict(weights)
    assert np.array_equal(model.value(obs), other.value(obs)) and model.moments.mean.shape == model.moments.var.shape == (4,)
    assert {*model.predict(obs, mask=[[True, False]] * 2)} == {0} and {*model.predict(obs, mask=[[False, True]] * 2)} == {1}
    assert (run / "episodes.csv").exists() and (run / "metrics.csv").exists()


def test_every_name_of_ours_on_the_page_exists():
    """What begins with proximo. and model., arguments and flags in the column of Proximo, which is the last of each table."""
    ours = " ".join(line.rsplit("|", 2)[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert {"train", "resume", "evaluate"} <= {*(named := re.findall(r"\bproximo\.(\w+)", ours))}
    assert [name for name in named if not hasattr(proximo, name)] == []
    assert [name for name in re.findall(r"\bmodel\.(\w+)\b", ours) if not hasattr(Model, name)] == []
    fields = {*proximo.Config.__dataclass_fields__, *inspect.signature(proximo.train).parameters,
              *inspect.signature(proximo.evaluate).parameters, *inspect.signature(Model.act).parameters,
              *inspect.signature(GymVectorEnvs).parameters}
    assert [name for name in re.findall(r"\b([a-z]\w+)=", ours) if name not in fields] == []
    flags = [flag.replace("-", "_") for flag in re.findall(r"`--(?:no-)?([a-z][\w-]*)", ours)]
    assert len(flags) > 40 and [flag for flag in flags if flag not in {*fields, "resume"}] == []


def test_a_variant_in_capital_letters():
    with pytest.raises(proximo.UsageError, match=r"^PPO is not a variant. Did you mean ppo.*\?"):
        proximo.train("PPO")
    with pytest.raises(proximo.UsageError, match="To name an environment, write env_id='CartPole-v1'"):
        proximo.train("CartPole-v1")


def the_same_training():
    """The arguments that the page gives for the defaults of Stable-Baselines3, as a configuration."""
    (arguments,) = re.findall(r"The same\s+training needs `([^`]*)`", PAGE)
    return eval(f"proximo.Config({arguments})", {"proximo": proximo})


def test_the_arguments_for_the_same_training_are_the_defaults_of_stable_baselines3():
    """Its value loss is the mean of the squared errors, ours half of it: twice its vf_coef."""
    peer = pytest.importorskip("stable_baselines3").PPO("MlpPolicy", "CartPole-v1", device="cpu")
    cfg, group = the_same_training(), peer.policy.optimizer.param_groups[0]
    assert (cfg.num_envs, cfg.num_steps, cfg.update_epochs) == (peer.n_envs, peer.n_steps, peer.n_epochs)
    assert cfg.minibatch_size == peer.batch_size and cfg.learning_rate == group["lr"] and cfg.adam_eps == group["eps"]
    names = ("gamma", "gae_lambda", "ent_coef", "max_grad_norm", "target_kl")
    assert [name for name in names if getattr(cfg, name) != getattr(peer, name)] == []
    assert cfg.clip_coef == peer.clip_range(1.0) and cfg.vf_coef == 2 * peer.vf_coef and peer.clip_range_vf is None
    assert not cfg.clip_vloss and cfg.anneal_lr == cfg.anneal_clip == "none"
    assert cfg.norm_adv == "minibatch" and peer.normalize_advantage and cfg.orthogonal_init and peer.policy.ortho_init
    layers = [layer.out_features for layer in peer.policy.mlp_extractor.policy_net if hasattr(layer, "out_features")]
    assert [*cfg.hidden_sizes] == layers and not cfg.shared_network
    assert cfg.activation == peer.policy.activation_fn.__name__.lower()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_weights_of_stable_baselines3_act_as_there(env_id, tmp_path, monkeypatch):
    """Discrete actions and a Gaussian, by the program of the page; the first weights of both differ."""
    peer = pytest.importorskip("stable_baselines3").PPO("MlpPolicy", env_id, device="cpu")
    monkeypatch.chdir(tmp_path)
    peer.save("agent.zip")
    program = textwrap.dedent(PAGE.partition("    # from_sb3.py\n")[2].partition("\nThis holds")[0])
    exec(program.replace("CartPole-v1", env_id), {"__name__": "page"})
    model, rows = proximo.load("from_sb3"), np.stack([peer.observation_space.sample().clip(-9, 9) for _ in range(50)])
    assert np.array_equal(model.predict(rows), peer.predict(rows, deterministic=True)[0])
    values = peer.policy.predict_values(peer.policy.obs_to_tensor(rows)[0]).detach().numpy()[:, 0]
    assert np.allclose(model.value(rows), values, atol=1e-5) and np.ptp(values) > 0
    if env_id == "CartPole-v1":
        assert np.exp(model.logprob([rows[0]] * 2, range(2))).sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["actor_lr", "critic_learning_rate", "vf_lr"])
def test_two_learning_rates_lead_to_the_program(name):
    """That page has FACTORS for parts of the network."""
    with pytest.raises(proximo.UsageError, match=f"^{name} is not a field of this variant. A program in docs/add-a-loss.md .* other learning rates"):
        proximo.train("ppo", **{name: 1e-3})
    assert "FACTORS" in (Path(__file__).resolve().parents[1] / "docs" / "add-a-loss.md").read_text().partition("## Another update")[2]


@pytest.mark.parametrize("names", [
    "num_actors reward_shaper lr_schedule schedule_type save_best_after save_frequency truncate_grads bounds_loss_coef seq_length units",
    "rewards_shaper_scale time_limit_bootstrap random_timesteps learning_starts observation_preprocessor learning_rate_scheduler_kwargs",
    "actor_hidden_dims critic_obs_normalization obs_groups save_interval symmetry_cfg rnn_hidden_dim init_at_random_ep_len"])
def test_settings_of_whole_configurations_for_robots_are_answered(names):
    """Of rl_games, skrl and rsl_rl in Isaac Lab. Those without an answer were compared with the spelling of our names."""
    assert [name for name in names.split() if name not in ROBOTS] == []


def test_the_defaults_of_rllib_are_those_of_its_source():
    """Of the installed Ray, whose files are read: importing RLlib needs packages that Ray does not install."""
    ray = importlib.util.find_spec("ray")
    folder = Path(ray.origin).parent / "rllib" if ray and ray.origin else Path("missing")
    if not folder.is_dir():
        pytest.skip("Ray is not installed")
    arguments, = re.findall(r"new API stack\) are `([^`]*)`", PAGE)
    cfg = eval(f"proximo.Config({arguments})", {"proximo": proximo})
    ppo, base, model = ((folder / name).read_text() for name in (
        "algorithms/ppo/ppo.py", "algorithms/algorithm_config.py", "core/rl_module/default_model_config.py"))
    given = {name: ast.literal_eval(value) for text in (base, ppo)
             for name, value in re.findall(r"^ +self\.(\w+) = ([\d.e-]+|True|False|None)(?: .*)?$", text, re.M)}
    ours = {"lr": cfg.learning_rate, "train_batch_size": cfg.batch_size, "num_epochs": cfg.update_epochs, "lambda_": cfg.gae_lambda,
            "clip_param": cfg.clip_coef, "vf_loss_coeff": cfg.vf_coef / 2, "entropy_coeff": cfg.ent_coef, "gamma": cfg.gamma,
            "num_env_runners": cfg.num_envs, "grad_clip": None, "kl_coeff": 0.2, "kl_target": 0.01, "vf_clip_param": 10.0,
            "normalize_actions": True, "minibatch_size": 128}
    assert {name: given[name] for name in ours} == ours and given["num_envs_per_env_runner"] == 1
    assert cfg.minibatch_size == 125 and cfg.anneal_lr == "none" and not cfg.clip_vloss and cfg.norm_adv == "batch"
    assert re.search(rf"fcnet_hiddens: .*{re.escape(str([*cfg.hidden_sizes]))}", model) and "kernel_initializer: Optional[Union[str, Callable]] = None" in model
    assert re.search(rf'fcnet_activation: str = "{cfg.activation}"', model) and "free_log_std: bool = False" in model
    assert "Adam(params)" in (folder / "core/learner/torch/torch_learner.py").read_text() and cfg.adam_eps == 1e-8
