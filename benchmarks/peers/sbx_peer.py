"""SBX, Stable-Baselines3 in JAX: `sbx_peer.py SETTINGS`."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("sb3_peer.py")))
