"""Which configurations can be ejected on JAX."""

from dataclasses import fields

from proximo.config import Config
from proximo.facts import facts

TASKS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")  # written in JAX, with Discrete actions
NUMBERS = ("num_envs", "num_steps", "hidden_sizes", "seed", "total_timesteps", "learning_rate", "adam_eps", "gamma",
           "gae_lambda", "num_minibatches", "update_epochs", "clip_coef", "ent_coef", "vf_coef", "max_grad_norm")
CHOICES = ("env_id", "anneal_lr", "clip_vloss", "bootstrap_truncated")  # the file has the code of one choice
WITHOUT_EFFECT = ("engine", "framework", "checkpoint_every", "cuda", "compile")
OTHER_CHECKS = ("device", "precision", "overlap", "autoreset", "init_from", "env_file", "env_kwargs",
                "env_wrappers")  # refusals()


def jax_refusals(cfg: Config, variant: str) -> list[str]:
    """Return one sentence for each reason why a configuration cannot be ejected on JAX."""
    tasks = f"{', '.join(TASKS[:-1])} or {TASKS[-1]}"
    if variant != "ppo":
        return [f"{variant} with --framework {cfg.framework} cannot be ejected: on JAX only ppo is supported, with "
                f"{tasks}. Use it, or --framework torch and a variant that trains with it."]
    found = []
    if cfg.env_id not in TASKS or cfg.engine not in ("auto", "jax"):
        found.append(f"env_id={cfg.env_id} with engine={cfg.engine} cannot be ejected on JAX: only environments "
                     f"written in JAX are supported. Use --env-id {tasks} and leave --engine out, or use "
                     "--framework torch.")
    kept, known = {*NUMBERS, *CHOICES, *WITHOUT_EFFECT, *OTHER_CHECKS}, facts(cfg)
    names = [field.name for field in fields(cfg) if field.name not in kept and known[field.name].group != "logging"
             and getattr(cfg, field.name) != field.default]
    return found + [f"{name}={getattr(cfg, name)} cannot be ejected on JAX: only {', '.join((*NUMBERS, *CHOICES))} may "
                    f"differ from the defaults. Leave --{name.replace('_', '-')} out, or use --framework torch."
                    for name in names]
