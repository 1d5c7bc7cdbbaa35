"""Everything that is wrong with a configuration: types, ranges, sizes (of ranks too), and limits of its variant."""

import math
import re
from typing import Any

from proximo.config import Config
from proximo.envs.gym_source import single_env_problems, source_problems
from proximo.envs.machine.memory_needs import memory_problems
from proximo.envs.workers.choice import group_problems
from proximo.errors import UsageError, one_line, with_place
from proximo.facts import Engine, converted_fields, facts, range_problems, shown, type_problems
from proximo.processes import world_from_environment

DEVICE = re.compile("cpu|auto|cuda(:[0-9]+)?")
MOST_ITERATIONS = 2**31 - 1  # of a schedule with JAX, whose integers have 32 bits

BY_ITSELF = {"envpool": "EnvPool steps its environments on threads of its own",
             "brax": "Brax simulates all environments as one batch",
             "jax": "JAX simulates all environments in one compiled function"}


def config_problems(cfg: Config) -> list[str]:
    """Return everything that is wrong with a configuration, one sentence each."""
    if traced := [name for name in facts(cfg) if _is_traced(getattr(cfg, name))]:
        return [f"{name} is an array of jax.vmap, jax.jit or jax.grad, whose number is not known yet. A configuration "
                f"has numbers of Python. proximo.sweep(..., {name}=[...]) trains several values in one compiled "
                "function, and so does step(state, learning_rate=X) of make_training." for name in traced]
    if wrong := type_problems(cfg):
        return wrong
    cfg = converted_fields(cfg)
    wrong = range_problems(cfg)
    if cfg.keep_checkpoints == 1:
        wrong.append("keep_checkpoints=1 leaves nothing if the newest checkpoint is damaged. Use 2 or more, or 0: all.")
    if "/" in cfg.exp_name or "\\" in cfg.exp_name or (cfg.exp_name and not cfg.exp_name.strip(". ")):
        wrong.append(f"exp_name={cfg.exp_name} is not a name. Use one without / and \\; --run-dir names a folder.")
    if not DEVICE.fullmatch(cfg.device):
        wrong.append(f"device={cfg.device} is unknown. Use cpu, cuda, cuda:N or auto.")
    if cfg.track and cfg.logger in ("mlflow", "trackio"):
        wrong.append(f"track=True logs to Weights & Biases, and logger={cfg.logger} to another service. "
                     "Use one of them.")
    if cfg.desired_kl is not None and not 1e-6 <= cfg.learning_rate <= 1e-2:
        wrong.append(f"learning_rate={cfg.learning_rate} is outside of the range of desired_kl. Use a learning rate "
                     "between 1e-6 and 1e-2, or leave desired_kl out.")
    if min(cfg.total_timesteps, cfg.num_envs, cfg.num_steps, cfg.num_minibatches) >= 1:
        world, single_envs = world_from_environment(), engine_of(cfg) == "gym" and cfg.limits.gymnasium
        here = cfg.num_envs * world.local_size // world.size
        wrong += [*_problems_of_sizes(cfg), *memory_problems(cfg, here, single_envs), *_problems_of_schedules(cfg)]
    return [*wrong, *_problems_of_networks(cfg), *_problems_of_distributions(cfg), *_problems_of_limits(cfg),
            *_problems_of_overlap(cfg), *source_problems(cfg), *single_env_problems(cfg, engine_of(cfg)),
            *group_problems(cfg, BY_ITSELF.get(engine_of(cfg)))]


def _is_traced(value: object) -> bool:
    """Return whether a value is a tracer of JAX, which is not imported for that."""
    return any(kind.__name__ == "Tracer" and kind.__module__.startswith("jax") for kind in type(value).__mro__)


def checked(cfg: Config) -> Config:
    """Return the configuration as training uses it, completed; UsageError with a line for each problem if it fails."""
    cfg = given_config(cfg).resolved()
    if problems := config_problems(cfg):
        raise UsageError("\n".join(problems))
    return cfg


def given_config(cfg: Any) -> Config:
    """Return what a program gives to a loop as configuration; UsageError if it is something else, such as a class."""
    if not isinstance(cfg, Config):
        raise UsageError(f"cfg={one_line(f'{cfg!r:.60}')} is not a configuration. Pass an object, such as "
                         "proximo.Config(...).")
    return cfg


def engine_of(cfg: Config) -> Engine:
    """Return the engine of a configuration; for auto, the first one of its variant."""
    return cfg.limits.engines[0] if cfg.engine == "auto" else cfg.engine


def check_shares(cfg: Config, ranks: int, unit: str) -> None:
    """Check that environments and minibatches can be divided among ranks, and a process's environments among workers.

    Args:
        cfg: The configuration.
        ranks: Number of processes or devices that learn together.
        unit: What a rank is: "processes" or "devices".

    It raises UsageError if they cannot, and if --device-ids does not name one device for each rank.
    """
    if cfg.device_ids and len(cfg.device_ids) != ranks:
        given = f"{ranks} {unit}" if ranks > 1 else {"processes": "1 process", "devices": "1 device"}[unit]
        raise UsageError(f"--device-ids names {len(cfg.device_ids)} GPUs for {given}. Give one id for each, such as "
                         f"{' '.join(str(i // 2) for i in range(ranks))}.")
    if unit == "devices" and len(set(cfg.device_ids)) < len(cfg.device_ids):
        raise UsageError(f"--device-ids names a device twice: {' '.join(map(str, cfg.device_ids))}. Name each once.")
    if cfg.num_envs % ranks:
        raise UsageError(f"num_envs={cfg.num_envs} is not divisible by {ranks} {unit}. Use a multiple of {ranks}.")
    rows = (own := cfg.num_envs // ranks) * (1 if cfg.recurrent != "none" else cfg.num_steps)
    if rows % cfg.num_minibatches:
        raise UsageError(f"Each of {ranks} {unit} has {rows} rows, which are not divisible by "
                         f"num_minibatches={cfg.num_minibatches}. Change num_envs, num_steps or num_minibatches.")
    if unit == "processes" and cfg.env_workers and cfg.limits.max_players == 1 and own % cfg.env_workers:
        raise UsageError(f"Each of {ranks} processes has {own} environments, which are not divisible by "
                         f"env_workers={cfg.env_workers}. Change num_envs or env_workers.")


def _problems_of_sizes(cfg: Config) -> list[str]:
    wrong = []
    if cfg.total_timesteps < cfg.batch_size:
        wrong.append(f"total_timesteps={cfg.total_timesteps} is less than one batch, num_envs * num_steps = "
                     f"{cfg.batch_size}. Use at least {cfg.batch_size}.")
    most = cfg.batch_size - (cfg.norm_adv == "minibatch")  # minibatches
    rows, what, why = (cfg.batch_size, "batch_size", "") if cfg.recurrent == "none" else (
        cfg.num_envs, "num_envs", " for --num-minibatches: a recurrent policy learns from whole environments")
    for parts, name, total, whole, limit, where in (
            (cfg.num_minibatches, "num_minibatches", rows, what, most, why),
            (cfg.env_workers or 1, "env_workers", cfg.num_envs, "num_envs", cfg.num_envs, "")):
        if parts >= 1 and total % parts:
            valid = ", ".join(str(k) for k in range(1, min(total, 64, limit) + 1) if total % k == 0)
            wrong.append(f"{whole}={total} is not divisible by {name}={parts}. Use {valid}{where}.")
    if cfg.batch_size == 1 and cfg.norm_adv != "none":
        wrong.append(f"num_envs * num_steps = 1 is a batch of one row, and norm_adv={cfg.norm_adv} makes its advantage "
                     "0. Use more of them, or --no-norm-adv.")
    elif most < cfg.num_minibatches == cfg.batch_size:
        wrong.append(f"num_minibatches={most + 1} leaves one row to each minibatch, and norm_adv=minibatch makes its "
                     "advantage 0. Use fewer minibatches, or --norm-adv batch.")
    return wrong


def _problems_of_networks(cfg: Config) -> list[str]:
    wrong = [] if cfg.hidden_sizes else [
        "hidden_sizes is empty. Give the units of at least one hidden layer, such as 64."]
    if cfg.model != "mlp" or cfg.recurrent != "none" or cfg.shared_network:
        wrong += [f"{name}={shown(sizes)} has no effect: policy and value share their network. Leave {name} out, or "
                  "use --no-shared-network with --model mlp and --recurrent none."
                  for name, sizes in (("policy_sizes", cfg.policy_sizes), ("value_sizes", cfg.value_sizes)) if sizes]
        if cfg.critic_obs:
            wrong.append(f"critic_obs={cfg.critic_obs} needs separate networks: policy and value share theirs. Leave "
                         "critic_obs out, or use --no-shared-network with --model mlp and --recurrent none.")
    if cfg.model != "mlp":
        wrong += [f"{name}={value} has no effect: it belongs to the mlp. Leave {name} out, or use --model mlp."
                  for name, value, default in (("activation", cfg.activation, "tanh"),
                                               ("layer_norm", cfg.layer_norm, False)) if value != default]
    return wrong


def _problems_of_distributions(cfg: Config) -> list[str]:
    wrong, name = [], cfg.distribution
    if cfg.limits.own_distribution and (name != "gaussian" or cfg.state_dependent_std):
        wrong.append("This variant has its own distribution of continuous actions. Leave --distribution and "
                     "--state-dependent-std out, or use ppo_continuous_action.")
    elif cfg.state_dependent_std and name in ("beta", "gsde"):
        wrong.append(f"state_dependent_std=True has no effect with distribution={name}, whose deviation depends on the "
                     "state anyway. Use gaussian or squashed.")
    if cfg.log_std_init and name == "beta":
        wrong.append(f"log_std_init={cfg.log_std_init} has no effect: distribution=beta has no standard deviation. "
                     "Leave log_std_init out.")
    if cfg.sde_sample_freq and name != "gsde":
        wrong.append(f"sde_sample_freq={cfg.sde_sample_freq} has no effect with distribution={name}. Use "
                     "--distribution gsde.")
    return wrong


def _problems_of_limits(cfg: Config) -> list[str]:
    wrong, limits = [], cfg.limits
    if cfg.engine not in ("auto", *limits.engines):
        advice = "Brax belongs to ppo_continuous_action_isaacgym." if cfg.engine == "brax" else limits.advice
        wrong.append(f"engine={cfg.engine} is not available in this variant. Use {', '.join(limits.engines)} or "
                     f"auto. {advice}".rstrip())
    elif cfg.engine == "jax" and cfg.framework != "jax":
        wrong.append(f"engine=jax does not run with framework={cfg.framework}. Use --framework jax or another "
                     "engine.")
    if cfg.framework not in limits.frameworks:
        wrong.append(f"framework={cfg.framework} is not available in this variant. Use "
                     f"{' or '.join(limits.frameworks)}. {limits.advice}".rstrip())
    if cfg.framework == "torch" and cfg.num_seeds > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} trains several agents in one compiled function, which needs "
                     "--framework jax. With torch, start one run per seed.")
    if cfg.framework == "jax" and cfg.precision == "bf16":
        wrong.append("precision=bf16 runs with framework=torch only: XLA computes it on CPUs more slowly than float32. "
                     "Use --framework torch or --precision float32.")
    if cfg.compile_with != "auto" and (not cfg.compile or cfg.framework == "jax"):
        wrong.append(f"compile_with={cfg.compile_with} says how --compile works with framework=torch. Add --compile "
                     "and --framework torch, or leave --compile-with out.")
    by_itself = BY_ITSELF.get(engine_of(cfg))
    if cfg.env_workers and by_itself:
        wrong.append(f"env_workers={cfg.env_workers} has no effect: {by_itself}. Leave --env-workers out.")
    if cfg.restart_envs and (not cfg.env_workers or cfg.autoreset == "next-step"):
        wrong.append(f"restart_envs={cfg.restart_envs} needs worker processes, and environments that reset in the same "
                     "step. Use --env-workers and --autoreset same-step, or leave --restart-envs out.")
    if cfg.autoreset == "next-step" and not limits.next_step:
        wrong.append("autoreset=next-step: the environments of this variant reset in the same step. Leave "
                     "--autoreset out.")
    return wrong


def _problems_of_schedules(cfg: Config) -> list[str]:
    """Return what is wrong with schedules; those of a class of one's own at the beginning, the middle and the end."""
    wrong, iterations = [], cfg.total_timesteps // cfg.batch_size
    annealed = [name for name in ("anneal_lr", "anneal_clip", "anneal_ent") if getattr(cfg, name) != "none"]
    if cfg.framework == "jax" and iterations > MOST_ITERATIONS and annealed:
        wrong.append(f"total_timesteps={cfg.total_timesteps} makes {iterations} iterations, and with framework=jax "
                     f"schedules have at most {MOST_ITERATIONS}. Use fewer, or set {' and '.join(annealed)} to none.")
    for name, words in (("learning_rate_at", "at least 0"), ("clip_coef_at", "above 0"), ("ent_coef_at", "at least 0")):
        if getattr(type(cfg), name) is getattr(Config, name) or cfg.num_iterations < 1:
            continue
        for iteration in sorted({1, (1 + cfg.num_iterations) // 2, cfg.num_iterations}):
            try:
                found = getattr(cfg, name)(iteration)
            except Exception as error:
                wrong.append(f"{type(cfg).__name__}.{name}({iteration}) raised {with_place(error)}. Correct it.")
                break
            try:
                number = math.nan if isinstance(found, str) else float(found)
            except (TypeError, ValueError):
                number = math.nan
            if not 0 <= number < math.inf or (number == 0 and name == "clip_coef_at"):
                wrong.append(f"{type(cfg).__name__}.{name}({iteration}) returns {found!r:.60}. Return a number "
                             f"{words}.")
                break
    return wrong


def _problems_of_overlap(cfg: Config) -> list[str]:
    wrong = []
    if cfg.overlap and cfg.framework == "jax":
        wrong.append("overlap=True runs with framework=torch only. Use --framework torch, or leave --overlap out.")
    if cfg.overlap and cfg.recurrent != "none":
        wrong.append(f"overlap=True does not support recurrent={cfg.recurrent}: the network that learns has not seen "
                     "what the other one played. Use --recurrent none, or leave --overlap out.")
    if cfg.overlap and (processes := world_from_environment().size) > 1:
        wrong.append(f"overlap=True trains in one process, and {processes} were started. Start it without torchrun, or "
                     "leave --overlap out.")
    return wrong
