"""What is known before the ejected program runs: the configuration, the objects of a real set-up, and simplifications.

The objects that training uses are made for the configuration, and read. Whatever they say about structure (which
head, which layers, what the environments return) holds for every run of the ejected file.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from proximo import errors
from proximo.config import Config

# Fields of text and lists that a reader of the file may change. Other texts choose between branches of the library.
KNOBS = ("env_id", "hidden_sizes")

# Attributes that are 0 where no checkpoint is continued.
ZEROS = ("iteration_shift",)

# Messages, and what only the library's own processes need. Functions called check_... are left out besides: the library
# has made its checks for this configuration when it ejects.
DROPPED_CALLS = frozenset((
    "notify", "notify_once", "warn", "warn_once", "announce_images", "announce_rebuilds", "leave", "load_libraries",
    "keep_gradients_off", "use_egl_when_headless", "warn_of_json"))

# Functions that return one of their arguments where one process learns on the CPU: name -> index of the argument.
IDENTITIES = {"all_reduce_sum": 0, "reduce_sum": 0, "local": 0, "_converted": 2, "gym_id": 0, "with_quick_space": 0,
              "keep_computed": 1}

# Modules with checks of what the user may change in the ejected file; those of other environments are left out.
CHECKED = ("proximo.envs.atari_ids",)

# What the library does with more care, written as a program for one environment does it.
SIMPLER = {"close_env": "{0}.close()",
           "make_registered": "gym.make({0}, disable_env_checker=True)",
           "set_up_torch": "torch.set_num_threads(cfg.threads)", "host_zeros": "np.zeros({0}, {1})"}

# Functions whose value the library computes when it ejects, from arguments that are known.
PURE = frozenset((
    "isinstance", "len", "bool", "hasattr", "type", "action_problems", "packed_layout",
    "has_image_parts", "obs_layout", "float_view", "clips_rewards", "image_axes", "issubdtype",
    "numpy_module", "sticky_chance", "is_atari", "mask_parts", "mask_methods", "kwargs_of",
    "int", "dtype", "device", "space_layout", "without_mask"))

# Functions of one expression that are written where they are called.
INLINED = frozenset((
    "make_rows_or_workers", "rows_class", "keep_step",
    "merge_over_ranks", "gather_episodes", "make_agent", "named_source",
    "with_image_settings", "finish_env", "call_maker", "numpy_module", "env_source", "packed_layout",
    "Config.clip_coef_at", "Config.ent_coef_at", "Config.learning_rate_at", "NoMemory.forward", "zeros",
    "Storage.whole", "Storage.episode"))

# Functions that a reader of PPO looks for. They stay, even where they are short.
HEADINGS = frozenset(("train", "learn", "collect", "gae", "ppo_loss", "update", "flat_adam", "apply_gradient",
                      "find_rom", "games_for_one", "refuse_other_spaces",
                      "refuse_other_games", "seeded_agent",
                      "make_jax_control", "minibatch_advantages"))

# Functions inside functions that stay there.
CLOSURES = frozenset(("bind", "gradients"))

# Methods of environments that training does not call.
DROPPED_METHODS = frozenset(("render", "state", "load", "call", "keeps_state", "render_fps", "screen"))

# Docstrings of functions that do less in the ejected file than in the library.
SENTENCES = {
    "Normalizer": "What stands between environments and learner: functions that take and return the statistics.",
    "count_step": "Count what step() returned: observations that the policy acts on, and discounted returns.",
    "count_reset": "Count what reset() returned: its observations are counted, and all returns begin at 0.",
    "start_moments": "Return the moments of no rows.",
    "AleGame": "One game on an emulator, with the wrappers of openai/baselines (details 14-18, 20).",
    "EpisodeCounter": "Adds up the rewards of each game, in place and in float64.",
    "make_mujoco": "Make one environment per seed.",
    "make_from_source": "Make one environment.",
    "make_learner": "Make the functions that learn.",
    "seeded_envs": "Make the environments with the seeds of an iteration.",
    "GymEnvs.close": "Close every environment.",
    "make_network": "Return an MLP from observations to sizes[-1] units.",
    "Config": "The hyper-parameters.",
    "num_iterations": "Iterations of the run: total_timesteps // batch_size.",
    "ControlPure.step": "Step every environment. One whose episode ends begins again in the same step.",
    "make_jax_control": "Make the environments.",
    "fold_key": "Return the key of a stream in one iteration.",
    "PoolEnvs.reset": "Begin every game.",
    "SelfPlayEnvs.step": "Step every game. `action` is (N,) integers.",
    "SelfPlayEnvs.close": "Leave the games, which need no end.",
    "make_game": "Make one game with the ROM from the ale-py package.",
    "first_carry": "Reset the environments.",
    "Iteration": "The result of one iteration.",
    "_set_masks": "Prepare the Step that is returned whenever no episode ends: all its arrays stay.",
    "ActionHead": "What all heads share.",
    "AleEnvs.step": "Step every game.",
    "AleEnvs": "N games that are stepped together, into arrays that stay.",
    "Carry": "What playing continues from.",
    "read_space": "Decide how observations become rows of one array.",
    "action_writer": "Return a function from the policy's actions (N, *action_shape) to N actions of environments.",
    "GymEnvs": "N environments that are stepped together, into arrays that stay.",
    "whole": "Return one array of the rollout.",
    "_begin": "Reset row i; return its first observation.",
    "train": "Proximal policy optimization (Schulman et al. 2017, algorithm 1). Yields an Iteration per update.",
}

# The faults of the library are errors of Python in the file: NumbersError is an ArithmeticError.
ERRORS = {name: next((base.__name__ for base in kind.__mro__[1:-3] if base.__module__ == "builtins"), "RuntimeError")
          for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ProximoError)}


class Facts(NamedTuple):
    """What is known of one variant."""

    cfg: Config
    results: Mapping[str, Any]  # what a function returns, by its name
    fields: Mapping[str, Any]  # attributes with this name have this value in every record
    instances: Mapping[type, Any]  # the object of a class, where there is one
    present: frozenset[str]  # attributes with this name are never None
    named: Mapping[str, Any]  # what a parameter of this name is in every function
    assumed: Mapping[tuple[str, str], Any]  # (function, parameter): what it is where the program calls it
    expressions: Mapping[str, Any]  # what an expression with this text is in every function
    written: Mapping[str, str]  # what takes the place of a call of a function, besides SIMPLER
    identities: frozenset[str]  # methods that return their first argument
    dropped_calls: frozenset[str]  # functions that the program need not call, besides those of every program
    dropped_fields: Mapping[str, frozenset[str]]  # fields of a record that the program need not have
    types: Mapping[str, str]  # the class of the program that takes the place of an interface in annotations
