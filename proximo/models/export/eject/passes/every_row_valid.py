"""What the library writes for rows that may not be valid, and how it is written where every row is valid.

Only suites that reset one step late, and games of several players, have rows in which there is nothing to learn.

The gradient of `x.sum()` is one number with stride 0, that of `torch.where(valid, x, 0.0).sum()` has a number per row.
torch adds up the two in different orders, with other last bits. This matters where such a gradient is summed over the
rows before it meets another number: in the entropy of a Gaussian, whose deviation is the same in all rows. There, a
product with ones makes it a gradient per row again.
"""

from proximo.models.export.eject.rewrites import Rewrites

REWRITES: Rewrites = {
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

FIELDS = dict.fromkeys(("Step", "Rollout", "Batch", "LossInputs"), frozenset(("valid",)))  # that records do not have
