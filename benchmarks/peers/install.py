"""Make one virtual environment for each group of peers: the folder that `--environments` of run.py names.

    python benchmarks/peers/install.py /envs --pufferlib /checkouts/pufferlib-3.0.0
    python benchmarks/peers/install.py /envs --only jax sb3

Needs a package index, 8 GB and, for PufferLib, a C++ compiler. An environment that exists is completed. `--pufferlib`
is the unpacked source distribution of PufferLib 3.0.0. Its CartPole and its advantages are compiled in place, with the
optimizations of its setup.py; a header whose functions do nothing takes the place of raylib, because nothing is drawn.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS: dict[str, tuple[list[str], list[str]]] = {  # the peers that run there, and what pip installs
    "jax": (["rejax", "purejaxrl"], ["jax", "brax", "rejax==0.1.3", "gymnax<1"]),
    "sb3": (["sb3", "sbx"], ["torch==2.13.0", "stable-baselines3==2.9.2", "sbx-rl==0.28.0", "gymnasium[mujoco]",
                             "mujoco==3.17.0", "packaging", "ale-py", "opencv-python-headless"]),
    "cleanrl": (["cleanrl", "leanrl"], ["torch==2.13.0", "gymnasium==0.29.1", "gym==0.23.1", "mujoco==3.17.0",
                                        "numpy<2", "tensordict", "envpool", "tyro", "tqdm", "tensorboard", "imageio",
                                        "setuptools"]),
    "samplefactory": (["samplefactory"], ["torch==2.13.0", "sample-factory==2.1.1"]),
    "pufferlib": (["pufferlib"], ["torch==2.13.0", "numpy<2", "gym==0.23.1", "gymnasium==0.29.1",
                                  "rich-argparse", "psutil", "nvidia-ml-py", "setuptools"])}
CONSTRAINED = ("jax", "sb3")  # the versions of Proximo's own constraints; the other programs need older ones
COLORS = """
typedef struct { unsigned char r, g, b, a; } Color;
typedef struct { float x, y; } Vector2;
enum { KEY_ESCAPE, KEY_TAB };
#define LIGHTGRAY (Color){0}
"""
CALLS = ("InitWindow", "SetTargetFPS", "CloseWindow", "IsKeyDown", "IsKeyPressed", "ToggleFullscreen", "BeginDrawing",
         "ClearBackground", "DrawLine", "DrawRectangle", "DrawLineEx", "DrawText", "EndDrawing", "WindowShouldClose",
         "IsWindowReady")
BUILD = """
import os
import numpy
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
cartpole = Extension("pufferlib.ocean.cartpole.binding", ["pufferlib/ocean/cartpole/binding.c"],
                     include_dirs=[numpy.get_include(), os.path.abspath("no_raylib")],
                     extra_compile_args=["-O2", "-flto", "-Wno-implicit-function-declaration",
                                         "-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION"],
                     extra_link_args=["-fwrapv", "-O2"])
advantages = CppExtension("pufferlib._C", ["pufferlib/extensions/pufferlib.cpp"],
                          extra_compile_args={"cxx": ["-O3"]})
setup(name="parts", packages=[], ext_modules=[cartpole, advantages],
      cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
      script_args=["-q", "build_ext", "--inplace"])
"""


def build_pufferlib(python: str, source: Path) -> None:
    """Compile the two extension modules that the benchmark needs beside PufferLib's sources."""
    header = source / "no_raylib" / "raylib.h"
    header.parent.mkdir(exist_ok=True)
    header.write_text(COLORS + "".join(f"#define {name}(...) 0\n" for name in CALLS) + '#define TextFormat(...) ""\n')
    subprocess.run([python, "-c", BUILD], cwd=source, check=True)


def install(folder: Path, name: str) -> str:
    """Make or complete one environment, and return the path of its interpreter."""
    if not (folder / name / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
    python = str(folder / name / "bin" / "python")
    pinned = ["-c", str(HERE.parents[1] / "constraints.txt")] if name in CONSTRAINED else []
    subprocess.run([python, "-m", "pip", "install", "-q", *pinned, *ENVIRONMENTS[name][1]], check=True)
    return python


def main() -> None:
    """Install what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--pufferlib", type=Path, metavar="SOURCE")
    given = parser.parse_args()
    for name in given.only:
        python = install(given.folder.resolve(), name)
        if name == "pufferlib" and given.pufferlib:
            build_pufferlib(python, given.pufferlib)


if __name__ == "__main__":
    main()
