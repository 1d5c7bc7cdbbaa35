"""The cases of same_weights.py: which runs two checkouts of Proximo have to end with the same bits.

A row names a variant, what is special about the runs, where they are run, and the flags that make them special.
Places: `torch` and `jax` are one process; `-x2` two ranks; `-run` two ranks under a real torchrun; `-mesh` two devices
of one process; `-compiled` adds --compile. A name is PLACE/VARIANT/LABEL.
"""

import shlex
from dataclasses import dataclass

ITERATIONS = 3
SMALL = ("--num-envs 4 --num-steps 16 --num-minibatches 2 --update-epochs 2 --memory-size 8 "
         "--threads 1 --logger none --checkpoint-every 1 --keep-checkpoints 0")
BOTH = "torch jax"
PAIR = "torch jax torch-x2"  # pairs of JAX take ten times as long: fewer of them
PAIRS = "torch jax torch-x2 jax-x2"
CUSTOM = "--env-id same_weights_envs:"
PONG, POOL = "--env-id PongNoFrameskip-v4 --screen-size 36", "--env-id Pong-v5 --screen-size 36"
FLAT = f"{POOL} --model mlp --num-steps 8"

FLAT_ROWS = [
    ("ppo", "auto", BOTH, ""),
    ("ppo", "cartpole", f"{PAIR} torch-run jax-run jax-mesh torch-compiled", "--engine gym"),
    ("ppo", "norm", PAIRS, "--engine gym --norm-obs --norm-reward"),
    ("ppo", "lstm", f"{PAIRS} torch-compiled", f"{CUSTOM}Short-v0 --recurrent lstm"),
    ("ppo", "gru", BOTH, f"{CUSTOM}Short-v0 --recurrent gru"),
    ("ppo", "next-step", "torch", f"{CUSTOM}Short-v0 --autoreset next-step --norm-obs"),
    ("ppo", "next-step-gru", BOTH, f"{CUSTOM}Short-v0 --autoreset next-step --recurrent gru --norm-reward"),
    ("ppo", "short", BOTH, f"{CUSTOM}Short-v0"),
    ("ppo", "no-bootstrap", BOTH, f"{CUSTOM}Short-v0 --no-bootstrap-truncated"),
    ("ppo", "shared", BOTH, "--engine gym --shared-network"),
    ("ppo", "details", BOTH, "--engine gym --no-anneal-lr --anneal-clip --no-clip-vloss --no-orthogonal-init "
                             "--gae-lambda 0.9 --gamma 0.9 --ent-coef 0.05 --vf-coef 0.7 --max-grad-norm 0.05"),
    ("ppo", "adv-batch", PAIR, "--engine gym --norm-adv batch"),
    ("ppo", "adv-none", "torch", "--engine gym --norm-adv none"),
    ("ppo", "target-kl", PAIRS, "--engine gym --target-kl 1e-4 --learning-rate 0.01"),
    ("ppo", "workers", BOTH, "--engine gym --env-workers 2 --norm-obs"),
    ("ppo", "masked", PAIR, f"{CUSTOM}Masked-v0"),
    ("ppo", "masked-lstm", "torch", f"{CUSTOM}Masked-v0 --recurrent lstm"),
    ("ppo", "multi-discrete", BOTH, f"{CUSTOM}MultiDiscrete-v0"),
    ("ppo", "multi-binary", "torch", f"{CUSTOM}MultiBinary-v0"),
    ("ppo", "dict", "torch", f"{CUSTOM}DictObs-v0"),
    ("ppo", "cnn", "torch", f"{CUSTOM}Image-v0 --model cnn"),
    ("ppo", "impala", BOTH, f"{CUSTOM}Image-v0 --model impala"),
    ("ppo", "box2d", BOTH, "--env-id LunarLander-v3 --engine gym"),
    ("ppo", "envpool", PAIRS, "--engine envpool --norm-obs"),
    ("ppo", "envpool-lstm", "torch", "--engine envpool --recurrent lstm"),
    ("ppo", "inside", "jax jax-x2 jax-mesh", "--engine jax --norm-obs --norm-reward"),
    ("ppo", "inside-lstm", "jax jax-mesh", "--engine jax --recurrent lstm"),
    ("ppo", "inside-adv-batch", "jax", "--engine jax --norm-adv batch --target-kl 1e-4"),
    ("ppo", "inside-acrobot", "jax", "--env-id Acrobot-v1 --engine jax"),
    ("ppo", "seeds", "jax", "--engine jax --num-seeds 3 --norm-obs --norm-reward"),
    ("ppo", "refused-engine", BOTH, "--engine brax"),
    ("ppo", "refused-flag", "torch", "--gama 0.9"),
    ("ppo", "refused-sizes", "torch-x2 jax-x2", "--num-envs 5 --num-minibatches 1"),
    ("compact", "cartpole", PAIR, "--env-id CartPole-v1"),
    ("compact", "box2d", BOTH, ""),
    ("compact", "masked", "torch", f"{CUSTOM}Masked-v0"),
    ("compact", "atari", "torch", f"{PONG} --model cnn"),
]
CONTINUOUS_ROWS = [
    ("ppo_continuous_action", "pendulum", f"{PAIRS} torch-compiled", "--env-id Pendulum-v1 --engine gym"),
    ("ppo_continuous_action", "lstm", BOTH, "--env-id Pendulum-v1 --engine gym --recurrent lstm"),
    ("ppo_continuous_action", "bounded", BOTH, f"{CUSTOM}Bounded-v0"),
    ("ppo_continuous_action", "next-step", "torch", f"{CUSTOM}Bounded-v0 --autoreset next-step"),
    ("ppo_continuous_action", "mujoco", BOTH, "--engine gym"),
    ("ppo_continuous_action", "dm-control", BOTH, "--env-id dm_control/cartpole-balance-v0"),
    ("ppo_continuous_action", "box2d", "torch", "--env-id LunarLanderContinuous-v3"),
    ("ppo_continuous_action", "envpool", BOTH, "--engine envpool"),
    ("ppo_continuous_action", "inside", "jax jax-mesh", "--env-id Pendulum-v1 --engine jax"),
    ("rpo_continuous_action", "pendulum", PAIR, "--env-id Pendulum-v1 --engine gym"),
    ("rpo_continuous_action", "mujoco", "torch", "--engine gym"),
    ("rpo_continuous_action", "gru-envpool", "torch", "--env-id Pendulum-v1 --engine envpool --recurrent gru"),
    ("rpo_continuous_action", "inside", "jax", "--env-id Pendulum-v1 --engine jax"),
    ("ppo_continuous_action_isaacgym", "fast", f"{PAIRS} jax-mesh", "--env-id fast --norm-obs --norm-reward"),
    ("ppo_continuous_action_isaacgym", "lstm", "torch", "--env-id fast --recurrent lstm"),
    ("ppo_continuous_action_isaacgym", "brax", "jax", "--env-id inverted_pendulum"),
    ("ppo_continuous_action_isaacgym", "seeds", "jax", "--env-id fast --num-seeds 3"),
    ("ppo_continuous_action_isaacgym_hands", "fast", BOTH, "--env-id fast"),
]
PICTURE_ROWS = [
    ("ppo_atari", "ale", f"{PAIR} torch-compiled", f"{PONG} --engine ale"),
    ("ppo_atari", "gym", "torch", f"{PONG} --engine gym"),
    ("ppo_atari", "envpool", "torch", f"{POOL} --engine envpool"),
    ("ppo_atari", "gru", "torch", f"{PONG} --recurrent gru"),
    ("ppo_atari", "impala", "torch", f"{PONG} --model impala"),
    ("ppo_atari", "workers", "torch", f"{PONG} --env-workers 2"),
    ("ppo_atari", "next-step", "torch", f"{POOL} --engine envpool --autoreset next-step"),
    ("ppo_atari", "sticky", "torch", "--env-id ALE/Breakout-v5 --screen-size 36 --noop-max 0 --no-max-pool"),
    ("ppo_atari_lstm", "ale", PAIR, PONG),
    ("ppo_atari_multigpu", "ale", "torch torch-x2 jax-x2", f"{PONG} --local-num-envs 2"),
    ("ppo_atari_envpool", "pool", PAIR, POOL),
    ("ppo_atari_envpool", "lstm", "torch", f"{POOL} --recurrent lstm"),
    ("ppo_atari_envpool_xla_jax", "flat", "jax", FLAT),
    ("ppo_atari_envpool_xla_jax", "refused", "torch", ""),
    ("ppo_atari_envpool_xla_jax_scan", "flat", "jax-x2", FLAT),
    ("ppo_atari_envpool_xla_jax_scan", "cnn", "jax", POOL),
    ("ppo_procgen", "starpilot", "torch torch-x2", ""),
    ("ppo_procgen", "lstm", "torch", "--env-id coinrun --recurrent lstm --num-levels 10"),
    ("ppo_procgen", "flat", "jax", "--model mlp"),
    ("ppo_pettingzoo_ma_atari", "pong", PAIRS, "--screen-size 36"),
    ("ppo_pettingzoo_ma_atari", "lstm", "torch", "--screen-size 36 --recurrent lstm"),
    ("ppo_pettingzoo_ma_atari", "four", "torch", "--env-id quadrapong_v4 --screen-size 36"),
]
FAST = {
    "torch/ppo/cartpole", "torch/ppo/norm", "torch/ppo/lstm", "torch/ppo/next-step-gru", "torch/ppo/no-bootstrap",
    "torch/ppo/target-kl", "torch/ppo/masked", "torch/ppo/multi-discrete", "torch/ppo/impala", "torch/ppo/envpool",
    "torch/ppo_continuous_action/mujoco", "torch/rpo_continuous_action/pendulum", "torch/ppo_atari/ale",
    "torch/ppo_pettingzoo_ma_atari/pong", "torch/compact/cartpole", "torch/ppo_procgen/starpilot",
    "torch-x2/ppo/norm", "torch-x2/ppo/lstm", "torch/ppo/refused-engine",
    "jax/ppo/norm", "jax/ppo/gru", "jax/ppo/envpool", "jax/ppo/inside", "jax/ppo/seeds",
    "jax/rpo_continuous_action/pendulum",
}


@dataclass(frozen=True)
class Case:
    """One run of ITERATIONS iterations, and a second one that goes on from a checkpoint of the first."""

    name: str
    place: str
    variant: str
    flags: str

    @property
    def framework(self) -> str:
        return self.place.partition("-")[0]

    @property
    def resumes(self) -> bool:
        """Whether the run is also gone on with; starting torchrun once is enough."""
        return not self.place.endswith("-run")

    @property
    def limit(self) -> int:
        """Seconds after which a command of this case is ended, on a busy machine too; most take one or two."""
        return 900 if self.place.endswith("-compiled") else 300

    def words(self, folder: str) -> list[str]:
        """Return the command line after `proximo`; what the case says takes the place of what is in SMALL."""
        own = shlex.split(self.flags)
        small = [word for flag, value in pairs(SMALL) if flag not in own for word in (flag, value)]
        sizes = dict(zip([*small, *own], [*small, *own][1:]))
        total = ITERATIONS * int(sizes["--num-envs"]) * int(sizes["--num-steps"])
        extra = ["--compile"] if self.place.endswith("-compiled") else []
        extra += ["--device-ids", "0", "1"] if self.place.endswith("-mesh") else []
        return ["train", self.variant, *small, *own, *extra, "--framework", self.framework,
                "--total-timesteps", str(total), "--run-dir", folder]


def pairs(flags: str) -> list[tuple[str, str]]:
    """Split flags that all have one value."""
    words = flags.split()
    return list(zip(words[::2], words[1::2]))


CASES = [Case(f"{place}/{variant}/{label}", place, variant, flags)
         for variant, label, places, flags in FLAT_ROWS + CONTINUOUS_ROWS + PICTURE_ROWS for place in places.split()]
