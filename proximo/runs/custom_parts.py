"""Parts of a run that belong to the user's program instead of the variant: environments, network, loss, loop."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from proximo.callbacks import Callback
from proximo.catalog import Parts, config_class, parts_of, variant_of
from proximo.config import Config
from proximo.envs.custom.imports import named_modules
from proximo.envs.gym_source import passed_env_problems
from proximo.errors import USES, UsageError, call_part
from proximo.models.model import Model
from proximo.models.play import record_run_video
from proximo.models.read_folder import model_from, read_model
from proximo.models.save_folder import trained_tree
from proximo.models.spaces import spec_from
from proximo.models.task import check_bounds, check_task
from proximo.part_checks import kind_of
from proximo.protocols import MakeEnvs, VecEnv
from proximo.runs.evaluation import Evaluator
from proximo.runs.folder.checkpoint import MANIFEST
from proximo.runs.folder.run import Run
from proximo.runs.part_names import ARGUMENTS, custom_env_argument, resume_call
from proximo.types import Iteration

LOOPS = {"proximo.on_torch.train": "torch", "proximo.on_jax.train": "jax"}  # by module


def framework_of(train: Callable[..., Any] | None) -> str:
    """Return the framework of a loop, or of a partial() of it; "" for a custom one."""
    while isinstance(train, partial):
        train = train.func
    return LOOPS.get(getattr(train, "__module__", ""), "")


class CustomParts(NamedTuple):
    """Parts of a run that a program passes in place of the variant's; None: the variant's.

    `resume_with` is recorded in config.json: the call or command that resumes the run, RUN standing for its folder. So
    are the `names` of the parts: reports and plots count them as settings.
    """

    train: Callable[..., Any] | None = None
    make_envs: MakeEnvs | None = None
    rows_per_game: Callable[[Any], int] | None = None  # of make_envs; see Parts
    make_agent: Callable[..., Any] | None = None
    loss_fn: Callable[..., Any] | None = None
    set_up: Callable[..., Any] | None = None  # see setup.py of the framework
    config: type[Config] | None = None  # the class of the configuration
    callbacks: tuple[Callback, ...] = ()  # called after every iteration
    resume_with: str = ""
    names: Mapping[str, str] = MappingProxyType({})  # by argument
    readers: tuple[str, ...] = ()  # which of make_envs and make_agent alone can apply settings (runs/logs/announce.py)
    wrong: tuple[str, ...] = ()  # problems of what was given; such parts are left out
    env_workers: int | None = None  # of a new run whose configuration leaves it open; None: what suits the machine

    def parts(self, variant: str, framework: str) -> Parts:
        """Return the parts that train, in a framework; UsageError if it is not installed."""
        usual = parts_of(variant, framework)
        group = usual.train_group and self._with_update(usual.train_group)
        return usual._replace(train=self._with_update(self.train or usual.train), train_group=group,
                              make_envs=self.make_envs or usual.make_envs,
                              rows_per_game=self.rows_per_game or usual.rows_per_game,
                              make_agent=self.make_agent or usual.make_agent)

    def _with_update(self, train: Callable[..., Any]) -> Callable[..., Any]:
        given = {} if self.loss_fn is None else {"loss_fn": self.loss_fn}
        given |= {} if self.set_up is None else {"set_up": partial(make_complete_setup, self.set_up)}
        return partial(train, **given) if given else train

    def playing_parts(self, variant: str, framework: str) -> Parts:
        """Return the parts with which a trained model plays: torch acts, and steps the environments from outside.

        Args:
            variant: The name of the variant.
            framework: The framework of `make_agent`.
        """
        usual = parts_of(variant, "torch")
        actor = partial(_actor_class(framework), self.make_agent) if self.make_agent else usual.make_actor
        return usual._replace(make_envs=self.make_envs or usual.make_envs,
                              rows_per_game=self.rows_per_game or usual.rows_per_game, make_actor=actor)

    def with_model(self, it: Iteration, cfg: Config, variant: str) -> Iteration:
        """Return an iteration whose model() makes the trained model that a run would save."""
        def model() -> Model:
            tree = trained_tree(variant, cfg, it.spec, it.statistics, it.weights(), self.names)
            return model_from(tree, cfg, self.playing_parts(variant, cfg.framework).make_actor)

        return it._replace(model=model)

    def problems(self, cfg: Config) -> list[str]:
        """Return what is wrong with these parts, and with settings that they do not take."""
        wrong = [*self.wrong, *(passed_env_problems(cfg) if "env" in self.names else ())]
        if (framework := framework_of(self.train)) and framework != cfg.framework:
            wrong.append(f"framework={cfg.framework}, and this program trains with {framework}. Leave --framework out.")
        return wrong + self._problems_of_set_up(cfg)

    def _problems_of_set_up(self, cfg: Config) -> list[str]:
        given_twice = self.set_up is not None and cfg.overlap
        return ["set_up was given with overlap=True, whose loop does not use it. Leave one of them out."] * given_twice

    def with_workers(self, cfg: Config) -> Config:
        """Return the configuration with `env_workers` of these parts, unless it has a number itself."""
        return replace(cfg, env_workers=self.env_workers) if cfg.env_workers is None else cfg

    def new_run(self, folder: Path, cfg: Config, variant: str) -> Run:
        """Return a run with these parts; the class of its configuration is one where it has methods or fields."""
        if self.train is not None or not differs_from_variant(type(cfg)):
            return Run(folder, cfg, variant, self.resume_with, custom_parts=self.names)
        names = {**self.names, "config": type(cfg).__name__}
        return Run(folder, cfg, variant, resume_call(names), custom_parts=names)

    def video_recorder(self, run: Run) -> Callable[[Path, int], None] | None:
        """Return what records the videos of a run; None without --capture-video."""
        if not run.cfg.capture_video:
            return None
        parts = self.playing_parts(run.variant, run.cfg.framework)
        return partial(record_run_video, run.cfg, parts)

    def evaluator(self, run: Run) -> Evaluator | None:
        """Return what evaluates a run while it trains; None without --eval-every."""
        return Evaluator(run, self.playing_parts(run.variant, run.cfg.framework)) if run.cfg.eval_every else None

    def check_resume(self, run: Run) -> None:
        """Check that the parts with which a run was trained are given again.

        Raises:
            UsageError: Some are missing or wrong, or an environment was given to a run that has an id.
        """
        if wrong := [*self.wrong, *self._problems_of_set_up(run.cfg)]:
            raise UsageError("\n".join(wrong))
        lacking = [name for name, part in ARGUMENTS.items()
                   if name in run.custom_parts and getattr(self, part) is None]
        if lacking or (run.resume_with.startswith("python ") and self.train is None):
            raise UsageError(f"{run.folder} was trained with parts of its own. Resume it with: {run.resume_line}" + (
                "\nenv is the function, the class or the object of the program that started the run: an id does not "
                "take its place." if "env" in lacking else ""))
        if self.config is not None and variant_of(self.config) != run.variant:
            raise UsageError(f"config={self.config.__name__} belongs to {variant_of(self.config)}, and {run.folder} "
                             f"was trained with {run.variant}. Pass the class of the run, or leave config out.")
        has_id = not custom_env_argument(run.custom_parts)
        if has_id and self.make_envs is not None and self.train is None:
            raise UsageError(f"{run.folder} was trained with env_id={run.cfg.env_id}, and the resume was given an "
                             "environment of a program. Leave env and make_envs out.")

    def recorded_by(self, run: Run) -> Run:
        """Return a run that is resumed, with these parts as config.json records them from here on."""
        again = self.new_run(run.folder, run.cfg, run.variant)
        return run._replace(resume_with=again.resume_with, custom_parts=again.custom_parts)

    def parts_of_resume(self, run: Run) -> Parts:
        """Return the parts that continue a run. User-defined environments must have the spaces that the run had."""
        parts = self.parts(run.variant, run.cfg.framework)
        if not (self.make_envs or named_modules(run.cfg)) or not (run.folder / "model" / MANIFEST).exists():
            return parts
        spec = spec_from(read_model(run.folder))

        def make_same_envs(cfg: Config, seeds: list[int]) -> VecEnv:
            envs = parts.make_envs(cfg, seeds)
            try:
                check_task(spec, envs, bool(cfg.norm_obs))
                check_bounds(spec, envs, cfg)
            except BaseException:
                envs.close()
                raise
            return envs

        return parts._replace(make_envs=make_same_envs)

    def check_several_seeds(self) -> None:
        """Check that nothing was given that belongs to one run, for several runs in one compiled function.

        Raises:
            UsageError: Callbacks, a training function or `set_up` were given.
        """
        if self.train is not None:
            raise UsageError("Several runs at once (num_seeds, sweep) are one compiled function, and this program has "
                             "a loop of its own. Start it once for each seed.")
        if self.set_up is not None:
            raise UsageError("Several runs at once (num_seeds, sweep) train without set_up, which makes one run. Leave "
                             "set_up out, or call proximo.train once for each run.")
        if self.callbacks:
            raise UsageError("Several runs at once (num_seeds, sweep) train without callbacks, which belong to one "
                             "run. Leave callbacks out, or call proximo.train once for each run.")

    def check_processes(self, processes: int) -> None:
        """Check that callbacks, which may end training, run where one process decides.

        Raises:
            UsageError: Callbacks were given, and there are several processes.
        """
        if self.callbacks and processes > 1:
            raise UsageError(f"callbacks were given, but {processes} processes train together. Use proximo.iterations, "
                             "or start one process.")


NO_CUSTOM_PARTS = CustomParts()


def differs_from_variant(kind: type[Config]) -> bool:
    """Return whether a configuration class has more than other defaults of the variant's fields."""
    base = config_class(variant_of(kind))
    names = {name for one in kind.__mro__[:kind.__mro__.index(base)] for name in vars(one)}
    own = (names | {*kind.__dataclass_fields__}) - {*base.__dataclass_fields__}
    return any(name == "__post_init__" or not name.startswith("__") for name in own)


def make_complete_setup(set_up: Callable[..., Any], cfg: Config, *arguments: Any) -> Any:
    """Call set_up(cfg, make_envs, make_agent, loss_fn, state). What its functions return is checked when they run.

    Raises:
        UsageError: It takes other arguments, or does not return what set_up of the framework returns.
    """
    setup = call_part("set_up", set_up, cfg, *arguments)
    if cfg.framework == "torch":
        from proximo.on_torch.another_update import changed_setup

        return changed_setup(setup)
    if not (isinstance(setup, tuple) and len(setup) == 2 and hasattr(setup[0], "iterate")):
        raise UsageError(f"set_up returned {kind_of(setup)}. {USES['set_up']}")
    return setup


def _actor_class(framework: str) -> Any:
    if framework == "jax":
        from proximo.on_jax.actor import Actor
    else:
        from proximo.on_torch.actor import Actor  # type: ignore[assignment]
    return Actor
