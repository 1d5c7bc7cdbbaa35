"""What a program calls to train: train, sweep, iterations, resume, check_env."""

import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proximo.config import Config
from proximo.errors import UsageError
from proximo.runs.interrupts.unbroken import unbroken_imports

if TYPE_CHECKING:
    from typing import Unpack

    import gymnasium

    from proximo.callbacks import Callback
    from proximo.protocols import LossFn, MakeAgent, SetUp
    from proximo.runs.check.env import Finding
    from proximo.runs.session import Session
    from proximo.runs.settings.keywords import Changes, Fields, SweepFields, TrainArguments
    from proximo.types import Iteration

    EnvLike = str | Callable[..., Any] | gymnasium.Env[Any, Any]  # an id, a function or a class, an object
    MakeAnyEnvs = Callable[[Any, list[int]], Any]  # (configuration, one seed per environment) -> all environments


@unbroken_imports()
def train(config: str | Config | type[Config] | None = None, env: "EnvLike | None" = None, *,
          make_envs: "MakeAnyEnvs | None" = None, make_agent: "MakeAgent | None" = None,
          loss_fn: "LossFn | None" = None, callbacks: "Sequence[Callback]" = (),
          resume: Literal["auto", "never"] | None = None, **values: "Unpack[TrainArguments]") -> Path:
    """Train an agent as `proximo train` does.

        proximo.train("ppo_atari", env_id="BreakoutNoFrameskip-v4", seed=1)
        proximo.train(proximo.Continuous(env_id="Hopper-v4"))
        proximo.train(env=lambda: MyEnv(size=5), total_timesteps=100_000)

    Worker processes (`env_workers`) are used only if they are asked for, because they run the calling script again. A
    run that is continued has those that it was started with.

    Args:
        config: The name of a variant, its configuration, or its class (also a subclass with other defaults). None: the
            preset of the environment, or the variant that suits its spaces if there is no preset.
        env: The id of an environment, a function that makes one (a new one of the same kind at each call), a class,
            or a gymnasium.Env (copied for every one of num_envs environments). None: the `env_id` of the configuration.
        make_envs: (cfg, seeds) -> all environments as one object, instead of `env`: a proximo.protocols.VecEnv or a
            gymnasium.vector.VectorEnv.
        make_agent: (spec, cfg) -> the network, with a proximo.protocols.Spec.
        loss_fn: (proximo.types.LossInputs, cfg) -> loss and named statistics.
        callbacks: Functions of a proximo.types.Iteration, which are called after every iteration. One may return a dict
            of numbers, which are logged as user/NAME, and raise proximo.StopTraining. See proximo.callbacks.
        resume: "auto": continue the run that is in `run_dir`, and do nothing if it is finished; "never": refuse such a
            folder; None: what the environment variable PROXIMO_RESUME says, otherwise "never".
        values: Fields of the configuration. Type checkers know those of Proximo's configurations; fields of your own
            are checked as proximo.train(MyConfig(field=...)). And `set_up=`: another update (docs/add-a-loss.md).

    Returns:
        The folder of the run, an absolute path; with num_seeds, the folder that contains one run per seed.

    Raises:
        UsageError: An argument cannot work; all problems are listed.
        EnvError: An environment failed.
        NumbersError: The loss or its gradient is not finite.
        FilesError: The folder cannot be written.
        PeerError: Another process of a distributed run was lost.
        KeyboardInterrupt: Ctrl-C or SIGTERM ended the run; it can be resumed.
    """
    from proximo.runs.restart import start_or_resume
    from proximo.runs.settings.arguments import configure, custom_parts

    custom = custom_parts(env, make_envs, make_agent, loss_fn, values.pop("set_up", None), callbacks)
    return _train_to_end(start_or_resume(*configure(config, env, custom, dict(values)), custom, mode=resume))


@unbroken_imports()
def sweep(config: str | Config | type[Config] | None = None, env: str | None = None, *,
          make_envs: "MakeAnyEnvs | None" = None, make_agent: "MakeAgent | None" = None,
          loss_fn: "LossFn | None" = None, resume: Literal["auto", "never"] | None = None,
          **values: "Unpack[SweepFields]") -> Path:
    """Train one run for every combination of some values, all at once, as `proximo sweep` does; see `train`.

        proximo.sweep("ppo", learning_rate=[3e-4, 1e-3], gamma=[0.98, 0.99], seed=[1, 2, 3], run_dir="runs/sweep")

    Args:
        config: As in `train`.
        env: The id of an environment that is written in JAX.
        make_envs: (cfg, seeds) -> environments that are written in JAX (docs/batched-environments.md).
        make_agent: As in `train`, for JAX.
        loss_fn: As in `train`, for JAX.
        resume: As in `train`.
        values: Fields of the configuration. The seed and the fields that docs/searches.md lists may have several
            values.

    Returns:
        The folder that contains one run for each combination.

    Raises:
        UsageError: An argument cannot work; all problems are listed. Otherwise as in `train`.
    """
    from proximo.runs.settings.arguments import custom_parts
    from proximo.runs.sweep import configure_sweep, start_sweep

    custom = custom_parts(None, make_envs, make_agent, loss_fn)
    members = configure_sweep(config, env, custom, dict(values))
    return _train_to_end(start_sweep(*members, mode=resume, custom=custom)[0])


def iterations(config: str | Config | type[Config] | None = None, env: "EnvLike | None" = None, *,
               make_envs: "MakeAnyEnvs | None" = None, make_agent: "MakeAgent | None" = None,
               loss_fn: "LossFn | None" = None, set_up: "SetUp | None" = None, state: dict[str, Any] | None = None,
               **values: "Unpack[Fields]") -> "Generator[Iteration, None, None]":
    """Train, and yield a proximo.types.Iteration after every iteration. There is no run folder, log or checkpoint.

    Fields about files, logging, evaluation and videos (run_dir, logger, ...) have no effect. No signal handler is set.

        for it in proximo.iterations("ppo", env_id="CartPole-v1"):
            print(it.steps, it.stats["losses/entropy"], it.finished.ret.mean())
            if enough:
                snapshot = it.snapshot()    # here, not later; iterations(..., state=snapshot) continues from it
                break

    For JAX, `proximo.on_jax.pure_training.make_training` gives the same training as pure functions.

    Args:
        config: As in `train`.
        env: As in `train`.
        make_envs: As in `train`.
        make_agent: As in `train`.
        loss_fn: As in `train`.
        set_up: As in `train`.
        state: The snapshot() of an earlier Iteration. Training continues bit for bit if Iteration.keeps_state, and
            otherwise after a multiple of checkpoint_every iterations. What a resume cannot change must be as it was.
        values: Fields of the configuration.

    Raises:
        UsageError: An argument cannot work; all problems are listed. The other errors are those of `train`.
    """
    from proximo.envs.machine.cores import set_passive_openmp_wait
    from proximo.processes import world_from_environment
    from proximo.runs.init_from import with_start
    from proximo.runs.settings.arguments import configure, custom_parts, for_programs, problems_of_iterations
    from proximo.runs.settings.resolve import problems_of, resolve

    custom = custom_parts(env, make_envs, make_agent, loss_fn, set_up)
    cfg, variant = configure(config, env, custom, dict(values))
    world = world_from_environment()
    cfg = resolve(custom.with_workers(cfg), variant, world.size, world.local_size, custom.make_envs is not None)
    if problems := [*custom.problems(cfg), *problems_of_iterations(state, cfg), *problems_of(cfg, world.size)]:
        raise UsageError("\n".join(problems))
    set_passive_openmp_wait(cfg)
    parts = custom.parts(variant, cfg.framework) if state else with_start(custom.parts(variant, cfg.framework), cfg)
    return for_programs(parts.train(cfg, parts.make_envs, parts.make_agent, state=state), cfg, variant, custom)


@unbroken_imports()
def resume(run: str | Path, env: "EnvLike | None" = None, *, make_envs: "MakeAnyEnvs | None" = None,
           make_agent: "MakeAgent | None" = None, loss_fn: "LossFn | None" = None,
           callbacks: "Sequence[Callback]" = (), config: type[Config] | None = None,
           **changes: "Unpack[Changes]") -> Path:
    """Continue a run from its newest checkpoint, bit for bit, as `proximo resume` does.

    Args:
        run: The folder of the run, or of the runs of several seeds.
        env: The environment, if the run was started with a custom one.
        make_envs: As at the start of the run.
        make_agent: As at the start of the run.
        loss_fn: As at the start of the run.
        callbacks: As in `train`. Those that have the methods state() and load(state) continue with their state.
        config: The class of the configuration, if it is a subclass with additional fields.
        changes: New values of fields of the configuration. In addition `allow_import=[...]`, modules and scripts that
            may be imported because the run names them, and `set_up=`, as at the start of the run.

    Returns:
        `run`.

    Raises:
        UsageError: There is no run, or it cannot be continued with these arguments.
        FilesError: Its files are damaged, or cannot be written.
        EnvError, NumbersError, PeerError, KeyboardInterrupt: As in `train`.
    """
    from proximo.runs.settings.arguments import check_wrappers, custom_parts, folder_of, modules_of
    from proximo.runs.start import resume

    custom = custom_parts(env, make_envs, make_agent, loss_fn, changes.pop("set_up", None), callbacks, config)
    allowed = modules_of(changes.pop("allow_import", ()))
    check_wrappers(changes)
    named = {"env_id": env} if isinstance(env, str) else {}
    return _train_to_end(resume(folder_of(run, "run"), named | dict(changes), custom, allowed))


@unbroken_imports()
def check_env(env: "EnvLike | None" = None, *, make_envs: "MakeAnyEnvs | None" = None,
              **values: "Unpack[Fields]") -> "list[Finding]":
    """Check an environment against Gymnasium's contract with a few thousand random steps, as `proximo check-env` does.

    Args:
        env: As in `train`.
        make_envs: As in `train`.
        values: Fields of the configuration that choose, configure or wrap the environment: env_file, env_kwargs, ...

    Returns:
        What was checked. `ok` is False for a fault, None for a remark. An environment that fails is a fault, too.

    Raises:
        UsageError: The environment cannot be made.
    """
    from proximo.runs.check.env import check_env
    from proximo.runs.settings.arguments import checked_values
    from proximo.runs.settings.resolve import with_changes

    if make_envs is not None and (env is not None or values.get("env_file")):
        raise UsageError("make_envs was given, and another environment too. Give one of them.")
    return check_env(env, with_changes(Config(), checked_values(env, values)), make_envs)


def _train_to_end(session: "Session") -> Path:
    """Train to the end, and return the folder as an absolute path: environments may change the current folder."""
    session.ends_process, folder = False, session.folder.absolute()
    if session.train_to_end():
        if "jax" in sys.modules:  # XLA may still compile, and would crash
            from proximo.runs.logs.output import skip_destructors

            skip_destructors()
        raise KeyboardInterrupt
    return folder
