"""Proximal policy optimization that people can trust, read, change and run fast."""

from proximo import callbacks
from proximo.api import check_env, iterations, resume, sweep, train
from proximo.callbacks import StopTraining
from proximo.config import Config
from proximo.errors import EnvError, FilesError, NumbersError, PeerError, UsageError
from proximo.runs.presets import preset
from proximo.runs.trained import evaluate, load, watch
from proximo.variants import RPO, Atari, AtariLSTM, BatchedSim, Compact, Continuous, Procgen, SelfPlay

__all__ = ["RPO", "Atari", "AtariLSTM", "BatchedSim", "Compact", "Config", "Continuous", "EnvError", "FilesError",
           "NumbersError", "PeerError", "Procgen", "SelfPlay", "StopTraining", "UsageError", "callbacks", "check_env",
           "evaluate", "iterations", "load", "preset", "resume", "sweep", "train", "watch"]
__version__ = "0.2.0.dev0"
