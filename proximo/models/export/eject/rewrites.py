"""Definitions of the library that the file has in a simpler form."""

import ctypes
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

Rewrites = Mapping[str, tuple[tuple[str, str], ...]]  # definition -> what the library writes, what the file writes

# EnvPool's games in one process. They have images with their channels first, and actions that begin with 0.
GAMES_OF_POOL: Rewrites = {
    "pool_threads": (
        ("the cores, divided by the processes that torchrun started on this machine", "one for each core"),
        ('usable_cores(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))', "os.cpu_count() or 1")),
    "PoolEnvs": (
        ("A pool as one VecEnv.", "N games that EnvPool steps on threads. A game begins again one step late."),
        ("self.num_envs, self._name, self._atari, self.clips_rewards = len(seeds), name, atari,",
         "self.num_envs, self._atari, self.clips_rewards = len(seeds), atari,"),
        ("        self._options = options |", "        options = options |"),
        ("self.pool: Any = self._make_pool()", "self.pool: Any = self._make_pool(name, options)"),
        ("def _make_pool(self)", "def _make_pool(self, name: str, options: dict[str, Any])"),
        (".make(self._name,", ".make(name,"), ("**self._options)", "**options)"),
        ("cannot make {self._name} with {self._options}", "cannot make {name} with {options}"),
        ("        native = self.pool.action_space\n"
         "        self.action_space: Any = true_action_space(native, name)\n"
         "        self._writer = ActionWriter(self.action_space, native, self.num_envs, name)\n"
         "        self._reader = pool_reader(self.pool.observation_space, self.action_space)\n"
         "        self.obs_shape, self.obs_dtype = self._reader.shape, self._reader.dtype\n"
         "        self.observation_space = self._reader.space\n",
         "        self.action_space: Any = self.pool.action_space\n"
         "        self.obs_shape, self.obs_dtype = self.pool.observation_space.shape, np.dtype(np.uint8)\n"),
        ("        if self._time >= 0:\n            self.pool.close()\n            self.pool = self._make_pool()\n", ""),
        ("raw, info = self.pool.reset()\n        obs = self._read(raw)\n", "obs, info = self.pool.reset()\n"),
        ("        sent = self._writer.write(action, self._time)\n", ""),
        ("raw, reward, terminated, truncated, info = self.pool.step(sent)",
         "obs, reward, terminated, truncated, info = self.pool.step(action.astype(np.int32))"),
        ("obs, fillers = self._read(raw), self._over", "fillers = self._over"),
        ("  # dm_control repeats its last reward here", ""))}

# The length of games is not reported.
SELF_PLAY: Rewrites = {
    "SelfPlayEnvs": (
        ("Games as one VecEnv; rows are", "Games of several players. Rows are"),
        ("        self.ret, self.length = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, np.int32)\n"
         "        self.steps = 0\n", "        self.ret = np.zeros(self.num_envs, np.float32)\n"),
        ("self.ret[:], self.length[:] = 0, 0", "self.ret[:] = 0"),
        ("        self.steps += 1\n", ""),
        ("        self.length += self._rows(valid)\n", ""),
        ("self.ret[first], self.length[first] = 0, 0", "self.ret[first] = 0"))}

# The rollout has an attribute of this name, which is read.
NUMPY_SUITES: Rewrites = dict.fromkeys(("AleEnvs", "GymEnvs", "PoolEnvs", "SelfPlayEnvs"),
                                       (('    arrays = "numpy"\n', ""),))

# The library has checked and completed the configuration when it ejects, and the program asks each iteration in time.
# No layer of its networks acts in another mode than it learns in, and no other thread draws from torch's generator.
CHECKED_CONFIG: Rewrites = {
    "train": (("    cfg = checked(cfg)\n", ""), ("@only_newest\n", ""), (", acting(setup.agent):", ":")),
    "collect": (("@torch.no_grad()\n", ""),),
    "seeded_agent": (("GLOBAL_GENERATOR, ", ""),)}


# A reader may change the loss: the names of its statistics are those of a minibatch, and not of a call before training,
# whose rows would lack the observations. Minibatches are indexed one after the other. Environments return numpy arrays,
# and playing has its arguments one by one.
OPEN_LOSS: Rewrites = {
    "make_gradient": (
        ("    @torch.enable_grad()  # environments and callbacks may have switched gradients off\n", ""),
        ("Callable[..., tuple[Tensor, Tensor]]:\n", "Callable[..., tuple[Tensor, dict[str, Tensor]]]:\n"),
        ("coefficients: Coefficients) -> tuple[Tensor, Tensor]:",
         "coefficients: Coefficients) -> tuple[Tensor, dict[str, Tensor]]:"),
        ("return flat, torch.stack(list(stats.values()))", "return flat, stats")),
    "make_step": (("                   coefficients: Coefficients) -> tuple[Tensor, Tensor]:",
                   "                   coefficients: Coefficients) -> tuple[dict[str, Tensor], Tensor]:"),),
    "update": (("torch.stack(stats).mean(0)",
                "torch.stack([torch.stack(list(one.values())) for one in stats]).mean(0)"),
               ('learner.names.index("approx_kl")', 'list(stats[0]).index("approx_kl")'),
               ('dict.fromkeys((*learner.names, "grad_norm"), float("nan"))', "{}"),
               ("[*learner.names,", "[*stats[0],"),
               ("counts, each = minibatches.count.tolist(), split_minibatches(minibatches)",
                "counts = minibatches.count.tolist()"),
               ("each[e * cfg.num_minibatches + m]",
                "Minibatches(index=minibatches.index[e, m], advantage=minibatches.advantage[e, m], "
                "count=minibatches.count[e, m], "
                "noise=None if minibatches.noise is None else minibatches.noise[e, m])")),
    "make_learner": (("    names = statistic_names(with_network(loss_fn, agent, storage, cfg), cfg, agent.recurrent, "
                      "storage.device)\n", ""),
                     ("with_names(loss_fn, names)", "loss_fn"), (" names=names,", ""),
                     ("def apply(", "def clip_and_move("), ("(gradient, apply,", "(gradient, clip_and_move,")),
    "Learner": (("    names: list[str]  # of the statistics\n", ""),),
    "collect": ((" steps from `carry`", " steps"),),
    "LossInputs": (("rows: Batch = None",
                    "rows: Any = None  # the Batch that these rows are: observations, masks, actions"),),
    "make_policy": (("agent: Any", "agent: Agent"),),
    "RolloutBuffer": (("self.arrays: dict[str, Array]", "self.arrays: dict[str, np.ndarray]"),),
    "Storage": (("        self.count_nonzero: Callable[[Any], Any] = np.count_nonzero if host else "
                 "torch.count_nonzero\n", ""),),
    "bootstrap": (("storage.count_nonzero(", "np.count_nonzero("),)}


# What the library writes for rows that may not be valid, as it is where every row is valid.
# Only suites that reset one step late, and games of several players, have rows in which there is nothing to learn.
#
# The gradient of `x.sum()` is one number with stride 0, that of `torch.where(valid, x, 0.0).sum()` has a number per
# row. torch adds up the two in different orders, with other last bits. This matters where such a gradient is summed
# over the rows before it meets another number: in the entropy of a Gaussian, whose deviation is the same in all rows.
# There, a product with ones makes it a gradient per row again.
EVERY_ROW_VALID: Rewrites = {
    "ppo_loss": (("torch.where(batch.valid, x, 0.0).sum()", "x.sum()"),),
    "Gaussian": ((".expand(self.mean.shape[:-1])", " * torch.ones(self.mean.shape[:-1])  # a gradient per row"),),
    "LossInputs": (("number of valid rows of the minibatch over all ranks, at least 1",
                    "number of rows of the minibatch"),),
    "learn": (("        rollout = without_fillers(rollout)\n", ""),),
    "minibatch_advantages": (
        ("normalise each over its valid rows on all ranks (detail 7)", "normalise each (detail 7)"),
        ("their numbers of valid rows", "their numbers of rows"),
        ("rows, valid_rows = select(advantage).double(), select(valid)", "rows = select(advantage).double()"),
        ("    kept = torch.where(valid_rows, rows, 0.0)\n", ""),
        ("valid_rows.sum(axes).double(), kept.sum(axes),\n" + " " * 39 + "kept.square().sum(axes)",
         "torch.ones_like(rows).sum(axes), rows.sum(axes), rows.square().sum(axes)"),
        ("sums[1:] / sums[0].clamp(min=1.0)", "sums[1:] / sums[0]")),
    "explained_variance": (
        (" over the valid rows of all ranks", ""),
        ("torch.where(valid, ret - value, 0.0).double()", "(ret - value).double()"),
        ("torch.where(valid, ret, 0.0).double()", "ret.double()"),
        ("valid.sum().double()", "torch.ones_like(error).sum()"),
        ("    count = max(count, 1.0)\n", "")),
    "count_returns": (
        ("in place: those of valid rows, of all ranks", "in place"),
        ("valid.sum().double(), torch.where(valid, ret, 0.0).double().sum()",
         "torch.ones_like(ret).double().sum(), ret.double().sum()"),
        ("total / number.clamp(min=1.0)", "total / number"),
        ("torch.where(valid, ret.double() - mean, 0.0)", "(ret.double() - mean)")),
    "EpisodeCounter": (("finished = over & valid", "finished = over"), ("        self._length += valid\n", "")),
    "RolloutBuffer": (('"truncated", "valid", "finished"', '"truncated", "finished"'),
                      ('rows["reward"][t][...], rows["valid"][t][...] = step.reward, step.valid',
                       'rows["reward"][t][...] = step.reward')),
    "update": (
        (" One without a valid row is left out.", ""),
        ("    counts = minibatches.count.tolist()\n    if not any(counts[0]):\n"
         "        return {}\n", ""),
        (" if counts[e][m]", "")),
    "make_batch": ((", valid=rows(rollout.valid)", ""),),
    "select_minibatch": ((", valid=select(batch.valid)", ""),),
    "make_gradient": ((" valid=rows.valid,", ""),),
    "finished_episodes": (("int(played[-1])", "steps + episode.finished.size"),
                          ("episode.ret[time, row]", "episode.ret[episode.finished]")),
    "GymEnvs": (
        ("        self._plays: list[Callable[[Any], tuple[Any, ...]]] = [env.step for env in self._envs]\n", ""),
        ("(play, chosen) in enumerate(zip(self._plays, actions", "(env, chosen) in enumerate(zip(self._envs, actions"),
        ("answer = play(chosen)", "answer = env.step(chosen)")),
    "Iteration": ((" (valid rows)", ""),)}

# Fields that records do not have then.
VALID_FIELDS = dict.fromkeys(("Step", "Rollout", "Batch", "LossInputs"), frozenset(("valid",)))


def import_envpool() -> ModuleType:
    """Import EnvPool after Qt, which its Procgen needs: from PyQt5-Qt5 if that is installed, otherwise the system's."""
    found = importlib.util.find_spec("PyQt5")
    folders = found.submodule_search_locations if found else None
    for folder in folders or ():
        for name in ["libQt5Core.so.5", "libQt5Gui.so.5"]:
            ctypes.CDLL(str(Path(folder) / "Qt5" / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    import envpool

    return envpool


def merged(*groups: Rewrites) -> Rewrites:
    """Return the rewrites of several groups, in order; a definition may be in more than one."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for group in groups:
        for name, pairs in group.items():
            found[name] = found.get(name, ()) + pairs
    return found


def rewritten(rewrites: Rewrites, name: str, text: str) -> str:
    """Return the text of a definition of the library as the file has it."""
    for before, after in rewrites.get(name, ()):
        if text.count(before) != 1:
            raise RuntimeError(f"{name} has changed: it has {text.count(before)} times {before}")
        text = text.replace(before, after)
    return text
