"""`proximo doctor` on machines made up for the purpose: every trap is found and named with its command."""

import platform
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from proximo.cli.doctor import Finding, Machine, diagnose, doctor, report

HEALTHY = Machine(system="Linux", python=(3, 11), environ={}, programs=frozenset({"g++"}), libraries=frozenset({"EGL"}),
                  gpus=(), free_disk=50e9, shared_memory=None,
                  versions={"torch": "2.13.0+cpu", "jax": "0.10.2", "jaxlib": "0.10.2", "chex": "0.1.92",
                            "gymnasium": "1.4.0", "numpy": "2.4.6", "mujoco": "3.17.0", "mujoco-mjx": "3.17.0",
                            "dm-control": "1.0.50", "rliable": "1.2.0", "pandas": "2.3.3", "ale-py": "0.12.1",
                            "opencv-python-headless": "5.0.0.93", "pygame-ce": "2.5.8", "imageio-ffmpeg": "0.8.1",
                            "matplotlib": "3.11.2", "envpool": "1.2.5", "pyqt5-qt5": "5.15.19", "wandb": "0.31.0"})


def with_versions(**versions: str | None) -> Machine:
    """HEALTHY with other packages (underscores stand for dashes; None removes one)."""
    changed = dict(HEALTHY.versions) | {name.replace("_", "-"): version for name, version in versions.items()}
    return HEALTHY._replace(versions={name: version for name, version in changed.items() if version})


TRAPS = {
    "mujoco 4": (with_versions(mujoco="4.0.0", mujoco_mjx="4.0.0"), "problem", "dm_control", "mujoco==3.17.0"),
    "mjx differs": (with_versions(mujoco_mjx="3.16.0"), "problem", "mujoco-mjx", "mujoco-mjx==3.17.0"),
    "pandas 3": (with_versions(pandas="3.1.1"), "problem", "rliable", "pandas<3"),
    "opencv twice": (with_versions(opencv_python="4.13.0"), "problem", "cv2", "pip install opencv-python-headless"),
    "pygame twice": (with_versions(pygame="2.6.1"), "problem", "pygame", "pip install pygame-ce"),
    "old gymnasium": (with_versions(gymnasium="0.29.1"), "problem", "too old", "gymnasium>="),
    "gymnasium 1.0": (with_versions(gymnasium="1.0.0"), "problem", "too old", "gymnasium>="),
    "old numpy": (with_versions(numpy="1.26.4"), "problem", "numpy 1.26.4", "numpy>=2"),
    "procgen-mirror": (with_versions(procgen_mirror="0.10.7"), "note", "numpy<2", "uninstall -y procgen-mirror"),
    "no Qt": (with_versions(pyqt5_qt5=None), "note", "Qt 5", "proximo[procgen]"),
    "no chex": (with_versions(chex=None), "note", "chex", "pip install chex"),
    "gymnax without six": (with_versions(gymnax="1.0.1"), "note", "six", "pip install six"),
    "no torch": (with_versions(torch=None), "problem", "torch is not installed", "pip install torch"),
    "another torch": (with_versions(torch="2.14.0"), "note", "--compile", "torch==2.13"),
    "jaxlib differs": (with_versions(jaxlib="0.9.2"), "problem", "jaxlib 0.9.2", "jaxlib==0.10.2"),
    "no jax": (with_versions(jax=None), "note", "--framework jax", "proximo[jax]"),
    "GPU, CPU torch": (HEALTHY._replace(gpus=("H200",)), "problem", "without CUDA", "a build of torch with CUDA"),
    "GPU, CPU jax": (HEALTHY._replace(gpus=("H200",)), "note", "cannot use the GPU", "jax[cuda13]"),
    "dead driver": (HEALTHY._replace(programs=frozenset({"g++", "nvidia-smi"})), "problem", "driver", "nvidia-smi"),
    "no compiler": (HEALTHY._replace(programs=frozenset()), "note", "C++ compiler", "apt-get install g++"),
    "glfw, no screen": (HEALTHY._replace(environ={"MUJOCO_GL": "glfw"}), "problem", "MUJOCO_GL", "MUJOCO_GL=egl"),
    "pictures off": (HEALTHY._replace(environ={"MUJOCO_GL": "disable"}), "note", "train, but there are no pictures and no videos",
                     "unset MUJOCO_GL"),
    "pictures off, a screen": (HEALTHY._replace(environ={"MUJOCO_GL": "Off", "DISPLAY": ":0"}), "note", "MUJOCO_GL=Off: ",
                               "unset MUJOCO_GL"),
    "no EGL": (HEALTHY._replace(libraries=frozenset()), "problem", "libEGL", "libegl1"),
    "x11, no screen": (HEALTHY._replace(environ={"SDL_VIDEODRIVER": "x11"}), "problem", "SDL", "unset SDL_VIDEODRIVER"),
    "empty SDL": (HEALTHY._replace(environ={"SDL_VIDEODRIVER": "", "DISPLAY": ":0"}), "problem", "SDL", "unset SDL"),
    "no ffmpeg": (with_versions(imageio_ffmpeg=None), "note", "videos", "pip install imageio-ffmpeg"),
    "no wandb": (with_versions(wandb=None), "note", "Weights & Biases", "proximo[wandb]"),
    "old Python": (HEALTHY._replace(python=(3, 10)), "problem", "Python 3.10", "python3.11"),
    "new Python": (HEALTHY._replace(python=(3, 14)), "note", "Python 3.14 on Linux: box2d", "python3.13"),
    "full disk": (HEALTHY._replace(free_disk=1e8), "problem", "0.1 GB", "--run-dir"),
    "lost ROM": (HEALTHY._replace(damaged_roms=("pong.bin",)), "problem", "pong.bin", "--force-reinstall --no-deps ale-py"),
    "small shm": (HEALTHY._replace(shared_memory=64e6), "note", "64 MB", "--shm-size"),
}


def test_a_healthy_machine_has_nothing_to_mend():
    """Against the set that engines.md saw work."""
    assert {finding.level for finding in diagnose(HEALTHY)} == {"ok"}


@pytest.mark.parametrize("name", TRAPS)
def test_every_trap_is_found_with_its_command(name):
    """Against engines.md, section 0 (packages), and what was seen of drivers and screens."""
    machine, level, what, fix = TRAPS[name]
    found = [finding for finding in diagnose(machine) if finding.level == level]
    assert [finding for finding in found if what in finding.what and fix in finding.fix]
    assert diagnose(machine)[0].level in (level, "problem")


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_no_compiler_is_to_be_installed_where_compile_does_not_use_it(system):
    findings = diagnose(HEALTHY._replace(programs=frozenset(), system=system))
    assert [one.level for one in findings if "--compile" in one.what and system in one.what] == ["ok"]
    assert not [one for one in findings if "compiler" in one.what or "install" in one.fix]


def test_a_screen_makes_any_renderer_fine():
    """MUJOCO_GL=glfw is right on a desktop."""
    desktop = HEALTHY._replace(environ={"DISPLAY": ":0", "MUJOCO_GL": "glfw"}, libraries=frozenset())
    assert {finding.level for finding in diagnose(desktop)} == {"ok"}


def test_this_machine_is_looked_at(monkeypatch):
    """The real look, against what is known of the process that runs the test."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "")
    text = report(doctor())
    assert f"Python 3.{sys.version_info.minor} on {platform.system()}" in text and f"torch {version('torch')}" in text
    assert "SDL_VIDEODRIVER=(empty)" in text and "unset SDL_VIDEODRIVER" in text


def test_a_package_that_is_installed_twice_has_the_version_that_is_imported(monkeypatch):
    """A virtual environment before the packages of the system: the first on the path hides the other."""
    first, second = (SimpleNamespace(name="Gymnasium", version=number) for number in ("0.29.1", "1.4.0"))
    monkeypatch.setattr("proximo.cli.doctor.distributions", lambda: iter([first, second]))
    assert any(finding.what.startswith("gymnasium 0.29.1 is too old") for finding in doctor())


def test_the_report_counts_problems():
    """Against the lines it should have."""
    text = report([Finding("problem", "it is broken", "mend it"), Finding("ok", "fine")])
    assert text.splitlines() == ["problem it is broken", "        -> mend it", "ok      fine", "", "1 problem found"]
