"""Proximal policy optimization that people can trust, read, change and run fast."""

from proximo.api import load, resume, train
from proximo.config import Config

__all__ = ["Config", "load", "resume", "train"]
__version__ = "0.2.0.dev0"
