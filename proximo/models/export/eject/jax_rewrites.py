"""What the library writes on JAX for filler rows, several devices and recurrent layers, and how the file has it.

The file has a configuration and the function `bind` where the library has a Learner.
"""

from proximo.config import Config
from proximo.models.export.eject.library import definition_text
from proximo.models.export.eject.rewrites import EVERY_ROW_VALID, Rewrites

LEARNER_MODULE = "proximo.on_jax.learner"
LEARNER = ("learner: Learner,", "cfg: Config, bind: Callable[[Weights], Any],")
CARRY = ("    carry: Carry\n", "    carry: Carry  # (N, *obs_shape), the observations that the policy acts on next\n")
BIND = ("learner.bind(", "bind(")
# A mean divides by a constant, for which XLA multiplies by its reciprocal: the same number where it is a power of two.
LOSS: Rewrites = {"ppo_loss": (
    ("\n\n    Each is this rank's share of a mean: a sum over its valid rows, divided by the number of valid rows of "
     "all ranks.\n    ", ""),
    ("    def mean(x: Array) -> Array:\n        return jnp.where(batch.valid, x, 0.0).sum() / batch.count\n\n", ""),
    ("policy_loss = mean(", "policy_loss = jnp.mean("), ("0.5 * mean(", "0.5 * jnp.mean("),
    ("entropy = mean(", "entropy = jnp.mean("), ('"old_approx_kl": mean(', '"old_approx_kl": jnp.mean('),
    ('"approx_kl": mean(', '"approx_kl": jnp.mean('), ('"clipfrac": mean(', '"clipfrac": jnp.mean('))}
ENVIRONMENTS: Rewrites = {
    "count_episodes": (("xp.where(valid, reward, 0)", "reward"), ("over & valid", "over"),
                       ("xp.where(valid, running.length + 1, running.length)", "running.length + 1")),
    "Running": (("; for suites inside a compiled function", ""),),
    "ControlPure": (("parts, running = self._first_states(own), start_episodes(self.num_envs, jnp)",
                     "parts = self._first_states(own)\n        running = start_episodes(self.num_envs, jnp)"),
                    ("        action = action.reshape(self.num_envs) if action.size == self.num_envs else action\n",
                     ""), ("cond_of_any(", "jax.lax.cond("),
                    ("over, valid = terminated | truncated, jnp.ones(self.num_envs, bool)",
                     "over, valid = terminated | truncated, None"),
                    ("A task as a PureEnv that resets in the same step.", "N environments of a task."))}


def jax_rewrites(cfg: Config) -> Rewrites:
    """Return the rewrites of every definition."""
    shared = {name: EVERY_ROW_VALID[name] for name in ("finished_episodes", "Iteration")}
    return {**shared, **LOSS, **ENVIRONMENTS, **playing(), **collecting(), **learning(), **updating(),
            "make_jax_control": one_task(cfg)}


def playing() -> Rewrites:
    """Return the rewrites of what plays: feed-forward agents, which are evaluated after the rollout."""
    return {
        "play": (
            ("learner: Learner, envs: PureEnv, normalizer: Normalizer, rank: Rank,", f"{LEARNER[1]} envs: PureEnv,"),
            BIND, ("learner.cfg.", "cfg."), ("rank()", "0"), ("envs, normalizer, state.envs", "envs, state.envs")),
        "SeparateAgent": (
            ("map_rows(lambda obs, mask, action: self.head(obs, mask).logprob(action), obs[:-1], mask, action)",
             "self.head(obs[:-1], mask).logprob(action)"),
            ("map_rows(lambda obs: self.critic(obs).squeeze(-1), obs)", "self.critic(obs).squeeze(-1)")),
        "Categorical": ((definition_text("proximo.on_jax.distributions", "Categorical").partition("class ")[0], ""),),
        "CategoricalHead": (
            ("        logits = self.network(features)\n        return Categorical(mask_logits(logits, mask))",
             "        return Categorical(self.network(features))"),
            ("for Categorical.sample", "for the Gumbel-max trick: the largest of logits plus noise is a sample")),
        "TrainState": (
            CARRY, ("envs: Any  # state of the environments; () where they are stepped outside the compiled function",
                    "envs: ControlState")),
        "Collected": (
            CARRY, ("envs: Any  # state of the environments; () where they are stepped outside JAX",
                    "envs: ControlState")),
        "Metrics": (("and the return and length of what", "and the return of what"),),
        "Rollout": ((" Its arrays may belong to the rollout buffer: read them before the next rollout.", ""),)}


def collecting() -> Rewrites:
    """Return the rewrites of a rollout."""
    collect, played, complete = (definition_text("proximo.on_jax.rollout", name)
                                 for name in ("collect", "PlayedStep", "make_rollout"))
    return {
        "collect": (
            ("agent: Any, envs: PureEnv, normalizer: Normalizer, env_state: Any",
             "agent: Agent, envs: PureEnv, env_state: ControlState"),
            ("state: tuple[Any, Carry]", "state: tuple[ControlState, Carry]"),
            ("-> tuple[tuple[Any, Carry], PlayedStep]", "-> tuple[Any, PlayedStep]"),
            ("    never = jnp.zeros_like(carry.first)\n\n", ""),
            (between(collect, "        acted = act_of(", "    (env_state, carry)"),
             "        action = (agent.head(carry.obs, None).logits + noise).argmax(-1).astype(jnp.int32)  # a sample\n"
             "        env_state, step = envs.step(env_state, action)\n"
             "        played = PlayedStep(obs=carry.obs, action=action, step=step._replace(obs=None))\n"
             "        return (env_state, Carry(obs=step.obs)), played\n\n")),
        "PlayedStep": (
            (between(played, "    carry: Carry", "    action"), "    obs: Array  # that the action was chosen from\n"),
            ("step: Step  # without observations; with final_obs where the agent evaluates later",
             "step: Step  # without what the next action is chosen from")),
        "make_rollout": (
            ("agent: Any", "agent: Agent"),
            ("    acted, step, never = played.carry, played.step, jnp.zeros_like(closing.first)\n"
             "    logprob, value, final_value = played.logprob, played.value, played.final_value\n",
             "    step = played.step\n"),
            ("acted.obs, closing.obs[None]]), acted.mask, played", "played.obs, closing.obs[None]]), None, played"),
            (between(complete, "        if step.final_obs is not None", "    else:"),
             "        final_value = lax.cond(step.truncated.any(), lambda: agent.value(step.final_obs, None, ()),\n"
             "                               lambda: jnp.zeros_like(value))\n"),
            ("    if final_value is not None:\n        next_value", "    next_value"),
            ("obs=acted.obs, first=acted.first, mask=acted.mask,", "obs=played.obs,"), (", valid=step.valid", ""))}


def learning() -> Rewrites:
    """Return the rewrites of what prepares the minibatches, and of what remains for the log."""
    normalize, variance = (definition_text(LEARNER_MODULE, name)
                           for name in ("minibatch_advantages", "explained_variance"))
    learn = definition_text("proximo.on_jax.train_step", "learn")
    return {
        "learn": (
            ("learner: Learner, rank: Rank,", LEARNER[1]),
            ("memory: tuple[Array, ...], keys: Keys", "shuffle_key: Array"),
            (between(learn, "    cfg, agent, reduce_sum", "    advantage"), ""),
            ("rollout.valid.shape, agent.recurrent,", "rollout.reward.shape, False,"),
            ("learner.estimate(", "estimate_advantages("),
            (between(learn, "    sequence = ", "    normalized"), ""),
            ("fold_key(keys.minibatch, iteration, rank())", "fold_key(shuffle_key, iteration, 0)"),
            (between(learn, "normalized, count", "    adam, losses"),
             "normalized = minibatch_advantages(advantage, index)\n"),
            (between(learn, "adam, losses = ", "    losses["),
             "adam, losses = update(cfg, bind, adam, make_batch(rollout, ret, (), False),\n"
             "                          Minibatches(index=index, advantage=normalized),\n"
             "                          cfg.learning_rate_at(iteration),\n"
             "                          Coefficients(cfg.clip_coef_at(iteration), cfg.ent_coef_at(iteration)))\n"),
            ("(rollout.value, ret, rollout.valid, reduce_sum)", "(rollout.value, ret)")),
        "minibatch_advantages": (
            (between(normalize, "advantage: Array,", ") -> tuple"), "advantage: Array, index: Array"),
            ("-> tuple[Array, Array]", "-> Array"),
            ("normalise each over its valid rows on all ranks (detail 7)", "normalise each (detail 7)"),
            (between(normalize, "    def select", ""),
             "    rows = take_rows(advantage.reshape(-1), index, 0)  # (E, M, B)\n"
             "    return (rows - rows.mean(2, keepdims=True)) / (rows.std(2, keepdims=True) + 1e-8)")),
        "make_batch": (
            ("x: Array | None) -> Any", "x: Array) -> Array"),
            ("x if recurrent or x is None else x.reshape", "x.reshape"), (", valid=rows(rollout.valid)", "")),
        "explained_variance": (
            (" over the valid rows of all ranks", ""), (", valid: Array, all_reduce_sum: Reduce", ""),
            (between(variance, "    def mean", "    variance_of"), ""),
            ("variance(ret)\n", "ret.var()\n"), ("mean(ret - mean(ret))", "(ret - ret.mean()).mean()"),
            ("variance(ret - value)", "(ret - value).var()"))}


def updating() -> Rewrites:
    """Return the rewrites of the update: a minibatch is not divided into parts."""
    update = definition_text(LEARNER_MODULE, "update")
    return {
        "start_adam": (
            ("    weights = {name: jnp.asarray(x) for name, x in weights.items()}\n", ""),
            ("weights: dict[str, Any]", "weights: Weights")),
        "update": (
            LEARNER, ("means over all minibatches that ran and had a valid row too",
                      "the means of all minibatches too"),
            ("cfg, unroll, by_name = learner.cfg, learner.cfg.unrolls, pack(adam.weights)[1]",
             "by_name = pack(adam.weights)[1]"),
            (between(update, "        weights = by_name", "        adam, norm"),
             "        gradient, stats = compute_gradient(cfg, bind, by_name(adam.weights), batch, minibatch,\n"
             "                                           coefficients)\n"),
            ("learner.all_reduce_sum(stats)", "stats"),
            ("lax.scan(step, adam, minibatches, unroll=unroll)", "lax.scan(step, adam, minibatches)"),
            ("learner.apply(", "apply_gradient("), ("max_grad_norm, count)", "max_grad_norm)"),
            (between(update, "        learned = ", "    def epoch_unless"),
             "        return adam, {name: x.mean() for name, x in stats.items()}\n\n"),
            ("lax.scan(epoch, adam, minibatches, unroll=unroll)", "lax.scan(epoch, adam, minibatches)")),
        "apply_gradient": (
            (", count: Array | float = 1.0", ""), ("ok & (count > 0)", "ok"),
            ("(jnp.isfinite(norm) | (count <= 0))", "jnp.isfinite(norm)"),
            (", unless `count`, of its rows, is 0.\n\n    Returns the norm of the gradient too, a scalar.\n    \"\"\"",
             ". Returns its norm too, a scalar.\"\"\"")),
        "compute_gradient": (
            LEARNER, BIND, ("learner.loss_fn(", "ppo_loss("), ("learner.agent.recurrent", "False"),
            ("learner.cfg)", "cfg)"), ("            count=minibatch.count,", "           ")),
        "LossInputs": ((": (B,), or (T, n) for a recurrent agent.", ": (B,)."),)}


def one_task(cfg: Config) -> tuple[tuple[str, str], ...]:
    """Return the rewrite of make_jax_control that makes the one task of the file."""
    tasks, whole = (definition_text("proximo.envs.jax_control", name) for name in ("control_tasks", "make_jax_control"))
    task = " ".join(between(tasks, f'"{cfg.env_id}": ', "),\n").partition(": ")[2].split())
    for name, actions in (("two", 2), ("three", 3)):
        task = task.replace(f"action_space={name}", f"action_space=gym.spaces.Discrete({actions})")
    return (("PureVec:", "ControlPure:"),
            (between(whole, "    tasks = ", ""), f"    return ControlPure({task}), cfg.num_envs)"))


def between(text: str, first: str, after: str) -> str:
    """Return the part of a text that begins with `first`, up to `after`; "": up to its end."""
    start = text.index(first)
    return text[start:text.index(after, start + len(first)) if after else len(text)]
