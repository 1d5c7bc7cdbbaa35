"""`proximo doctor`: what would make a run fail on this machine although pip reports no conflict, and how to fix it."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from ctypes.util import find_library
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal, NamedTuple

from proximo.cli.oldest import INSTALL_GYMNASIUM, is_too_old
from proximo.envs.atari_ids import REINSTALL, damaged_roms

GIGABYTE = 1e9
HEADLESS_DRIVERS = (None, "dummy", "offscreen")
WITHOUT_PICTURES = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL
OPENCV = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")
TESTED_TORCH = "2.13"
PROGRAMS = ("c++", "g++", "clang++", "nvidia-smi")
LIBRARIES = ("EGL", "GL")
Level = Literal["ok", "note", "problem"]


class Finding(NamedTuple):
    """One thing that was checked.

    A problem makes something fail that is installed: Proximo, an extra, or the use of a GPU. A note names something
    that is not installed, or that limits what can be done.
    """

    level: Level
    what: str
    fix: str = ""  # the command that fixes it


class Machine(NamedTuple):
    """Everything that the checks read, so that a test can describe any machine."""

    system: str  # platform.system()
    python: tuple[int, int]
    versions: Mapping[str, str]  # of installed distributions, by lower-case name with dashes
    environ: Mapping[str, str]
    programs: frozenset[str]  # those of PROGRAMS that are on the path
    libraries: frozenset[str]  # those of LIBRARIES that the loader finds
    gpus: tuple[str, ...]  # one line each, as the driver names them
    free_disk: float  # bytes where runs would be written
    shared_memory: float | None  # bytes of /dev/shm, None where there is none
    damaged_roms: tuple[str, ...] = ()  # of ale-py

    @property
    def headless(self) -> bool:
        """Return whether this is a Linux machine without a screen."""
        return self.system == "Linux" and not (self.environ.get("DISPLAY") or self.environ.get("WAYLAND_DISPLAY"))

    def has(self, package: str) -> bool:
        """Return whether a package is installed."""
        return package in self.versions

    def major(self, package: str) -> int:
        """Return the first number of the version of an installed package."""
        return int(self.versions[package].split(".")[0])


def doctor() -> list[Finding]:
    """Check this machine, problems first. No engine is imported, so this takes a fraction of a second."""
    return diagnose(this_machine())


def diagnose(machine: Machine) -> list[Finding]:
    """Return the findings for any machine, problems first."""
    checks = (python_findings, package_findings, torch_findings, jax_findings, compiler_findings, rendering_findings,
              wandb_findings, storage_findings)
    findings = [finding for check in checks for finding in check(machine)]
    return sorted(findings, key=lambda finding: ("problem", "note", "ok").index(finding.level))


def report(findings: list[Finding]) -> str:
    """Return the text of `proximo doctor`."""
    lines = [line for finding in findings for line in (
        f"{finding.level:8}{finding.what}", *[f"{'':8}-> {finding.fix}"] * bool(finding.fix))]
    count = sum(finding.level == "problem" for finding in findings)
    return "\n".join([*lines, "", f"{count} problem{'' if count == 1 else 's'} found"])


def this_machine() -> Machine:
    """Describe this machine; the only subprocess is that of the GPU driver, if there is one."""
    versions = {(d.name or "").lower().replace("_", "-"): d.version for d in [*distributions()][::-1]}  # first wins
    programs = frozenset(filter(shutil.which, PROGRAMS))
    if (compiler := os.environ.get("CXX", "").split()) and shutil.which(compiler[0]):
        programs |= {"c++"}
    shared = Path("/dev/shm")
    return Machine(system=platform.system(), python=sys.version_info[:2], versions=versions, environ=os.environ,
                   programs=programs, libraries=frozenset(filter(find_library, LIBRARIES)),
                   gpus=_gpus() if "nvidia-smi" in programs else (), free_disk=shutil.disk_usage(Path.cwd()).free,
                   shared_memory=shutil.disk_usage(shared).total if shared.is_dir() else None,
                   damaged_roms=damaged_roms())


def _gpus() -> tuple[str, ...]:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())


def python_findings(machine: Machine) -> list[Finding]:
    """Check the version of Python: wheels of Box2D exist for 3.11 to 3.13."""
    name = f"Python {'.'.join(map(str, machine.python))} on {machine.system}"
    if machine.python < (3, 11):
        return [Finding("problem", f"{name} is too old; Proximo needs 3.11", "python3.11 -m venv .venv")]
    if machine.python > (3, 13):
        return [Finding("note", f"{name}: box2d has no wheel for it", "python3.13 -m venv .venv")]
    return [Finding("ok", name)]


def package_findings(machine: Machine) -> list[Finding]:
    """Find sets of packages that install without an error and break when they run."""
    found = [*_version_findings(machine), *_doubled(machine, OPENCV, "cv2", "opencv-python-headless"),
             *_doubled(machine, ("pygame", "pygame-ce"), "pygame", "pygame-ce"), *_incomplete(machine)]
    return found or [Finding("ok", "no known conflict between the installed packages")]


def _version_findings(machine: Machine) -> list[Finding]:
    has, major, versions, found = machine.has, machine.major, machine.versions, []
    if has("mujoco") and has("dm-control") and major("mujoco") >= 4:
        found.append(Finding("problem", f"mujoco {versions['mujoco']} breaks every dm_control environment",
                             "pip uninstall -y mujoco mujoco-core mujoco-studio && pip install mujoco==3.17.0"))
    if has("mujoco") and has("mujoco-mjx") and versions["mujoco"] != versions["mujoco-mjx"]:
        found.append(Finding("problem", f"mujoco {versions['mujoco']} and mujoco-mjx {versions['mujoco-mjx']} differ; "
                             "they must be the same", f"pip install mujoco-mjx=={versions['mujoco']}"))
    if has("rliable") and has("pandas") and major("pandas") >= 3:
        found.append(Finding("problem", f"pandas {versions['pandas']} breaks rliable", 'pip install "pandas<3"'))
    if has("gymnasium") and is_too_old(version := versions["gymnasium"]):
        found.append(Finding("problem", f"gymnasium {version} is too old", INSTALL_GYMNASIUM))
    if has("numpy") and major("numpy") < 2:
        found.append(Finding("problem", f"numpy {versions['numpy']}: Proximo needs numpy 2", 'pip install "numpy>=2"'))
    return found


def _incomplete(machine: Machine) -> list[Finding]:
    found = [Finding("note", f"{old} asks for numpy<2; Proximo plays Procgen through EnvPool without it",
                     f"pip uninstall -y {old}") for old in ("procgen-mirror", "gym3") if machine.has(old)]
    needs = (("envpool", "pyqt5-qt5", "EnvPool's Procgen needs Qt 5", 'pip install "proximo[procgen]"'),
             ("gymnax", "six", "gymnax imports six, which it does not install", "pip install six"))
    found += [Finding("note", what, fix) for package, needed, what, fix in needs
              if machine.has(package) and not machine.has(needed)]
    if machine.has("ale-py") and machine.has("jax") and not machine.has("chex"):
        found.append(Finding("note", "ale-py's XLA interface needs chex", "pip install chex"))
    if roms := machine.damaged_roms:
        found.append(Finding("problem", f"{len(roms)} of ale-py's ROMs cannot be used: {roms[0]}", REINSTALL))
    return found


def _doubled(machine: Machine, packages: tuple[str, ...], module: str, keep: str) -> list[Finding]:
    there = [package for package in packages if package in machine.versions]
    return [Finding("problem", f"{' and '.join(there)} both install the module {module}, and overwrite each other",
                    f"pip uninstall -y {' '.join(there)} && pip install {keep}")] if len(there) > 1 else []


def torch_findings(machine: Machine) -> list[Finding]:
    """Check that torch is installed and can use the GPU, if there is one."""
    version = machine.versions.get("torch")
    if version is None:
        return [Finding("problem", "torch is not installed", "pip install torch")]
    found = [Finding("ok", f"GPU: {gpu}") for gpu in machine.gpus]
    if machine.gpus and "+cpu" in version:
        found.append(Finding("problem", f"this machine has a GPU, but torch {version} is built without CUDA",
                             "pip uninstall -y torch, then install a build of torch with CUDA"))
    elif "nvidia-smi" in machine.programs and not machine.gpus:
        found.append(Finding("problem", "the GPU driver does not answer", "nvidia-smi"))
    else:
        where = "" if machine.gpus else "; no NVIDIA GPU, so --device auto means cpu"
        found.append(Finding("ok", f"torch {version}{where}"))
    if not version.startswith(f"{TESTED_TORCH}."):
        found.append(Finding("note", f"--compile was tested with torch {TESTED_TORCH}, not with {version}",
                             f'pip install "torch=={TESTED_TORCH}.*"'))
    return found


def jax_findings(machine: Machine) -> list[Finding]:
    """Check that JAX is complete and can use the GPU, if there is one."""
    version = machine.versions.get("jax")
    if version is None:
        return [Finding("note", "--framework jax is not installed", 'pip install "proximo[jax]"')]
    if machine.versions.get("jaxlib") != version:
        return [Finding("problem", f"jax {version} and jaxlib {machine.versions.get('jaxlib')} differ",
                        f"pip install jax=={version} jaxlib=={version}")]
    if machine.gpus and not any(name.startswith("jax-cuda") for name in machine.versions):
        return [Finding("note", f"jax {version} cannot use the GPU", f'pip install "jax[cuda13]=={version}"')]
    return [Finding("ok", f"jax {version}")]


def compiler_findings(machine: Machine) -> list[Finding]:
    """Check that there is a compiler on Linux: --compile writes C++, and there only."""
    if machine.system != "Linux":
        return [Finding("ok", f"--compile falls back to eager on {machine.system}: it is tested on Linux only")]
    if compilers := [name for name in ("c++", "g++", "clang++") if name in machine.programs]:
        return [Finding("ok", f"C++ compiler for --compile: {compilers[0]}")]
    return [Finding("note", "no C++ compiler, so --compile falls back to eager", "apt-get install g++")]


def rendering_findings(machine: Machine) -> list[Finding]:
    """Check what makes videos black or rendering fail, above all on a machine without a screen."""
    found, driver, backend = [], machine.environ.get("SDL_VIDEODRIVER"), machine.environ.get("MUJOCO_GL")
    if driver == "" or (machine.headless and driver not in HEADLESS_DRIVERS):
        found.append(Finding("problem", f"SDL_VIDEODRIVER={driver or '(empty)'} cannot draw here: no picture of "
                             "classic control, Box2D or Atari", "unset SDL_VIDEODRIVER"))
    if "mujoco" in machine.versions and backend and backend.lower().strip() in WITHOUT_PICTURES:
        found.append(Finding("note", f"MUJOCO_GL={backend}: MuJoCo and dm_control train, but there are no pictures and "
                             "no videos of them", "unset MUJOCO_GL"))
    elif machine.headless and "mujoco" in machine.versions:
        if backend not in (None, "egl"):
            found.append(Finding("problem", f"MUJOCO_GL={backend or '(empty)'} needs a screen or a rare library: no "
                                 "picture of MuJoCo or dm_control", "export MUJOCO_GL=egl"))
        elif "EGL" not in machine.libraries:
            found.append(Finding("problem", "libEGL is missing: no picture of MuJoCo or dm_control without a screen",
                                 "apt-get install libegl1 libgl1-mesa-dri"))
    for package, module, use in (("pygame-ce", "pygame", "pictures of classic control and Box2D"),
                                 ("imageio-ffmpeg", "imageio-ffmpeg", "videos"),
                                 ("matplotlib", "matplotlib", "proximo plot")):
        if package not in machine.versions and module not in machine.versions:
            found.append(Finding("note", f"{use}: {package} is not installed", f"pip install {package}"))
    return found or [Finding("ok", f"rendering: {'no' if machine.headless else 'a'} screen, nothing in the way")]


def wandb_findings(machine: Machine) -> list[Finding]:
    """Report whether Weights & Biases can be used; it is optional."""
    version = machine.versions.get("wandb")
    if version is None:
        return [Finding("note", "Weights & Biases (--track) is not installed", 'pip install "proximo[wandb]"')]
    mode = machine.environ.get("WANDB_MODE")
    return [Finding("ok", f"Weights & Biases {version}" + (f", WANDB_MODE={mode}" if mode else
                    "; `wandb login` once before --track, or set WANDB_MODE=offline"))]


def storage_findings(machine: Machine) -> list[Finding]:
    """Check the disk space for runs, and the shared memory for --env-workers."""
    free = machine.free_disk / GIGABYTE
    level: Level = "problem" if free < 0.5 else "note" if free < 5 else "ok"
    found = [Finding(level, f"{free:.1f} GB free for runs in this folder",
                     "" if level == "ok" else "free some, or write to another folder with --run-dir")]
    if machine.shared_memory is not None and machine.shared_memory < GIGABYTE / 4:
        found.append(Finding("note", f"/dev/shm holds {machine.shared_memory / 1e6:.0f} MB, little for --env-workers "
                             "with images", "docker run --shm-size=2g ..."))
    return found
