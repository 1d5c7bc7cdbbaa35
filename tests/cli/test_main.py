"""The commands, and every flag's effect: it changes the weights where it should, and leaves them alone where not."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest

import proximo
from proximo.catalog import VARIANTS
from proximo.cli.doctor import Finding
from proximo.cli.main import COMMANDS, main
from proximo.config import Config
from proximo.facts import facts
from proximo.runs.settings.resolve import resolve
from proximo.variants import Atari
from tests.support.runs import SMALL, at_iteration, rows, same_weights, terminate, train, weights

# Flags of every variant whose change must change the weights of a small run, with what the run needs besides.
CHANGES_WEIGHTS = {
    "env_kwargs": "--env-kwargs max_episode_steps=5", "env_wrappers": "--env-wrappers gymnasium.wrappers:NormalizeReward",
    "frame_skip": "--frame-skip 2", "frame_stack": "--frame-stack 2",
    "env_id": "--env-id Acrobot-v1", "seed": "--seed 2", "total_timesteps": "--total-timesteps 352",
    "num_envs": "--num-envs 4", "num_steps": "--num-steps 32", "autoreset": "--autoreset next-step",
    "norm_obs": "--norm-obs", "clip_obs": "--norm-obs | --clip-obs 0.5", "norm_reward": "--norm-reward",
    "clip_norm_reward": "--norm-reward | --clip-norm-reward 0.01",
    "bootstrap_truncated": "--env-id tests.support.probes:Truncated-v0 | --no-bootstrap-truncated",
    "recurrent": "--recurrent lstm", "hidden_sizes": "--hidden-sizes 9 9",
    "policy_sizes": "--policy-sizes 4 4", "value_sizes": "--value-sizes 9", "activation": "--activation silu",
    "layer_norm": "--layer-norm", "norm_value": "--norm-value", "log_std_init": "--env-id Pendulum-v1 | --log-std-init -1",
    "distribution": "--env-id Pendulum-v1 | --distribution squashed",
    "state_dependent_std": "--env-id Pendulum-v1 | --state-dependent-std",
    "sde_sample_freq": "--env-id Pendulum-v1 --distribution gsde | --sde-sample-freq 4",
    "critic_obs": "--env-id tests.support.probes:DictObs-v0 | --critic-obs vector",
    "memory_size": "--recurrent gru | --memory-size 9", "shared_network": "--shared-network",
    "orthogonal_init": "--no-orthogonal-init", "learning_rate": "--learning-rate 1e-3", "anneal_lr": "--no-anneal-lr",
    "adam_eps": "--adam-eps 1e-2", "gamma": "--gamma 0.9", "gae_lambda": "--gae-lambda 0.5",
    "num_minibatches": "--num-minibatches 4", "update_epochs": "--update-epochs 3", "norm_adv": "--norm-adv batch",
    "clip_coef": "--learning-rate 0.1 | --clip-coef 0.01", "anneal_clip": "--learning-rate 0.1 | --anneal-clip cosine",
    "clip_vloss": "--learning-rate 0.1 | --no-clip-vloss", "ent_coef": "--ent-coef 0.5",
    "anneal_ent": "--ent-coef 0.5 | --ent-coef 0.5 --anneal-ent", "vf_coef": "--vf-coef 0.1",
    "max_grad_norm": "--max-grad-norm 0.01", "target_kl": "--learning-rate 0.1 | --target-kl 1e-6",
    "desired_kl": "--desired-kl 1e-6", "overlap": "--overlap",
    "checkpoint_every": "--env-id LunarLander-v3 | --checkpoint-every 2",
    "model": "--threads 1 --env-id tests.support.probes:Image-v0 | --model impala",
}
SAME_WEIGHTS = {
    "exp_name": "--exp-name other", "info_metrics": "--info-metrics is_success", "framework": "--framework torch", "engine": "--engine gym",
    "device": "--device cpu",
    "cuda": "--no-cuda", "torch_deterministic": "--no-torch-deterministic", "threads": "--threads 1",
    "logger": "--logger console", "log_every": "--log-every 3", "keep_checkpoints": "--keep-checkpoints 0", "env_workers": "--env-workers 1",
    "eval_every": "--eval-every 64", "eval_env_kwargs": "--eval-every 64 --eval-env-kwargs max_episode_steps=9",
    "eval_episodes": "--eval-every 64 --eval-episodes 2", "eval_num_envs": "--eval-every 64 --eval-num-envs 1",
    "eval_max_steps": "--eval-every 64 --eval-max-steps 9",
    "capture_video": "--capture-video", "backend": "--backend nccl", "env_timeout": "--env-timeout 5.5",
    "wandb_project_name": "--wandb-project-name other", "wandb_entity": "--wandb-entity other", "run_dir": "",
    "collective_timeout": "--collective-timeout 5.5", "restart_envs": "--env-workers 1 --restart-envs 2",
    "require_same_cpu": "--require-same-cpu",
}
ELSEWHERE = {"env_file": "tests/envs/test_gym_source.py", **dict.fromkeys(("grayscale", "resize"), "tests/envs/test_images.py"),
             "compile": "tests/on_torch/compile/test_aot.py", "track": "tests/runs/logs/test_log.py",
             "local_num_envs": "tests/cli/test_seed_commands.py", "device_ids": "tests/cli/test_seed_commands.py",
             "num_seeds": "tests/on_jax", "init_from": "tests/runs/test_init_from.py",
             "iteration_shift": "tests/runs/test_elastic.py",
             "scale_envs": "tests/cli/test_seed_commands.py", "env_groups": "tests/on_torch/test_rollout_groups.py",
             "precision": "tests/on_torch/test_precision.py", "compile_with": "tests/on_torch/compile/test_jit.py"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The runs that others are compared with, by their words."""
    folder, made = tmp_path_factory.mktemp("plain"), {}

    def run(words):
        if words not in made:
            made[words] = folder / str(len(made))
            assert train(made[words], *words.split()) == 0
        return made[words]

    return run


def test_every_flag_is_in_one_of_the_tables():
    names = {field.name for field in fields(Config)}
    assert names == CHANGES_WEIGHTS.keys() | SAME_WEIGHTS.keys() | ELSEWHERE.keys()
    assert all(Path(place).exists() for place in ELSEWHERE.values())
    logging = {name for name, fact in facts(Config).items() if fact.group == "logging"}
    assert logging <= SAME_WEIGHTS.keys() | {"track"}


@pytest.mark.parametrize("name", CHANGES_WEIGHTS)
def test_flag_changes_the_weights(name, plain, tmp_path):
    if "LunarLander" in CHANGES_WEIGHTS[name]:
        pytest.importorskip("Box2D")
    before, _, after = CHANGES_WEIGHTS[name].rpartition("|")
    assert train(tmp_path / "run", *before.split(), *after.split()) == 0
    assert not same_weights(plain(before), tmp_path / "run")


@pytest.mark.parametrize("name", SAME_WEIGHTS)
def test_flag_leaves_the_weights_alone(name, plain, tmp_path):
    words = SAME_WEIGHTS[name].split()
    assert train(tmp_path / "run", *words) == 0
    assert same_weights(plain(""), tmp_path / "run")
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    if len(words) == 2 and name in recorded:
        assert recorded[name] == [words[1]] or str(recorded[name]) == words[1]


def test_keep_checkpoints_and_checkpoint_every(tmp_path):
    for words, names in (("", [9, 10]), ("--keep-checkpoints 3", [6, 9, 10]), ("--keep-checkpoints 0", [3, 6, 9, 10]),
                         ("--checkpoint-every 100", [10])):
        folder = tmp_path / (words or "plain")
        train(folder, *words.split())
        assert sorted(int(path.name) for path in (folder / "checkpoints").iterdir()) == names


def test_capture_video_records_at_checkpoints_and_at_the_end(tmp_path):
    train(tmp_path, "--capture-video", "--checkpoint-every", "5")
    names = [path.name for path in sorted((tmp_path / "videos").iterdir())]
    assert names == ["step-000000160.mp4", "step-000000320.mp4"]
    assert all((tmp_path / "videos" / name).read_bytes()[4:8] == b"ftyp" for name in names)


def test_a_video_of_what_draws_nothing_does_not_end_the_run(tmp_path, capsys):
    assert train(tmp_path, "--env-id", "tests.support.probes:Acting-v0", "--capture-video") == 0
    told = capsys.readouterr().err
    assert "No video: tests.support.probes:Acting-v0 cannot be drawn" in told
    assert "add --env-kwargs render_mode=rgb_array." in told


def test_who_gave_a_render_mode_is_not_told_to_give_it(tmp_path, monkeypatch, capsys):
    """The function of this file takes the argument, and its environment draws nothing all the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.py").write_text("from tests.support.probes import Acting\n\n\n"
                                       "def make_env(render_mode=None):\n    return Acting()\n")
    assert train(tmp_path / "run", "--env-file", "blank.py:make_env", "--env-kwargs", "render_mode=rgb_array") == 0
    capsys.readouterr()
    assert main(["watch", str(tmp_path / "run"), "--allow-import", "blank.py", "--out", "a.mp4"]) == 2
    assert capsys.readouterr().err.endswith("It must return an array (H, W, 3) of uint8.\n")


def test_annealing_is_logged(tmp_path):
    train(tmp_path / "run")
    rates = [float(row["charts/learning_rate"]) for row in rows(tmp_path / "run", "metrics.csv")]
    assert rates == pytest.approx([2.5e-4 * (1 - i / 10) for i in range(10)])
    train(tmp_path / "flat", "--no-anneal-lr")
    assert {row["charts/learning_rate"] for row in rows(tmp_path / "flat", "metrics.csv")} == {"0.00025"}


def test_metrics_have_the_names_of_the_documents(tmp_path):
    train(tmp_path / "run")
    row = rows(tmp_path / "run", "metrics.csv")[-1]
    wanted = {"charts/episodic_return", "charts/episodic_length", "charts/learning_rate"} | {
        f"losses/{name}" for name in ("value_loss", "policy_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac",
                                      "explained_variance")}
    assert wanted <= row.keys() and row["global_step"] == "320"
    assert rows(tmp_path / "run", "episodes.csv")[0].keys() == {"step", "row", "return", "length"}


def test_the_remainder_that_does_not_run_is_said(tmp_path, capsys):
    train(tmp_path, "--total-timesteps", 350)
    assert "total_timesteps=350 is not a multiple of the batch size 32: training for 320 steps." in capsys.readouterr().err


@pytest.mark.parametrize("words,said", [
    (["train", "--env-id", "Pendulum-v1", "--preset", "none", "--total-timesteps", "2048"],
     "No variant was named: using ppo_continuous_action, because Pendulum-v1 has continuous actions."),
    (["train", "--env-id", "CartPole-v1", "--preset=none", "--total-timesteps", "512"],
     "No variant was named: using ppo, because CartPole-v1 has discrete actions."),
    (["train", "ppo", "--env-id", "CartPole-v0", "--total-timesteps", "512"], "Done: ")])
def test_train_by_itself(words, said, tmp_path, monkeypatch, capsys):
    """Without a variant, a successor of a retired id, and without --run-dir: runs/ENV__NAME__SEED__TIME."""
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--logger", "none"]) == 0
    assert said in capsys.readouterr().err
    folder, = (tmp_path / "runs").iterdir()
    assert folder.name.startswith(words[words.index("--env-id") + 1] + "__ppo")
    assert (folder / "summary.json").exists() and (folder / "model" / "manifest.json").exists()


def test_watch_and_plot(plain, tmp_path, capsys):
    shutil.copytree(plain(""), tmp_path / "run")
    assert main(["watch", str(tmp_path / "run"), "--max-frames", "20", "--deterministic"]) == 0
    assert (tmp_path / "run" / "videos" / "watch.mp4").stat().st_size > 1000
    gif = tmp_path / "a.gif"
    assert main(["watch", str(tmp_path / "run"), "--episodes", "3", "--pick", "worst", "--out", str(gif)]) == 0
    assert gif.read_bytes()[:4] == b"GIF8" and "is the worst: return" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "curve.png")]) == 0
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert str(tmp_path / "curve.png") in capsys.readouterr().out


def test_help_names_every_command(capsys):
    assert main([]) == 2 and main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"train", "list", "doctor"}))
@pytest.mark.parametrize("words", [[], [""]], ids=["none", "empty"])
def test_a_command_without_its_arguments_says_in_one_sentence_what_it_needs(command, words, capsys):
    """On stderr; an empty name would be the current folder."""
    assert main([command, *words]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert said.out == "" and line.startswith(f"proximo: {command} needs ") and f"`proximo {command} " in line


@pytest.mark.parametrize("words", [["doctor"], ["live", "."], ["train", "ppo", *SMALL], ["eval", "run"]], ids=" ".join)
def test_a_current_folder_that_was_removed_is_told(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(words) == 5
    assert capsys.readouterr().err == "proximo: The current folder was removed. Change to one that exists: cd FOLDER.\n"


def test_a_gymnasium_that_is_too_old_is_told(monkeypatch, capsys):
    """Other packages install an older one. What was missing first was a traceback."""
    def train(words):
        raise ImportError("cannot import name '_async_worker'")

    monkeypatch.setattr("proximo.cli.commands.train_command", train)
    monkeypatch.setattr("proximo.cli.messages.version", lambda name: {"gymnasium": "0.29.1"}[name])
    assert main(["train"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("proximo: gymnasium 0.29.1 is installed, and Proximo needs 1.1") and "_async_worker" in said
    monkeypatch.setattr("proximo.cli.messages.version", lambda name: {"gymnasium": "1.4.0"}[name])
    with pytest.raises(ImportError):
        main(["train"])


@pytest.mark.parametrize(("error", "words"), [
    (RuntimeError("can't start new thread"), r"No thread can be started \(can't start new thread\)\. .* \(ulimit -u\)"),
    (ImportError("libtorch_cpu.so: failed to map segment from shared object"), r"The memory is full \(libtorch.*\(ulimit -v")])
def test_a_limit_of_threads_or_of_address_space_is_told(error, words, monkeypatch, capsys):
    """As with --overlap under `ulimit -u 2`, and where torch cannot be imported under `ulimit -v 400000`."""
    def train(given):
        raise error

    monkeypatch.setattr("proximo.cli.commands.train_command", train)
    assert main(["train"]) == 2
    said = capsys.readouterr().err
    assert re.match(f"proximo: {words}", said) and said.count("\n") == 1


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"proximo {proximo.__version__}\n"


@pytest.mark.parametrize("command", ["eval", "watch", "export", "card", "push", "pull", "verify", "live", "plot", "rate", "check-env",
                                     "bench", "report", "compare", "tune", "pbt"])
def test_each_command_explains_itself(command, capsys):
    """In a sentence, besides its arguments; defaults are told once, and no value is called {None}."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and f"proximo {command}" in said and "default: None" not in said and "{None}" not in said
    assert "(default: '')" not in " ".join(said.replace("│", " ").split())
    assert any(line[:1].isalpha() and line.count(" ") > 5 for line in said.splitlines()[1:])


@pytest.mark.parametrize("words", ["train ppo --help-all", "eval --help"])
def test_help_has_its_width_where_the_terminal_says_none(words, monkeypatch, capsys):
    """COLUMNS=0, as some terminals and editors set it; in one column a line would be one character."""
    said = []
    for columns in ("80", "0", "1"):
        monkeypatch.setenv("COLUMNS", columns)
        with suppress(SystemExit):
            main(words.split())
        said.append(capsys.readouterr().out)
    assert said[0] and said[1:] == said[:1] * 2


def test_help_whose_reader_leaves_ends_as_other_output(tmp_path):
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m proximo train ppo --help-all | true; exit ${{PIPESTATUS[0]}}"],
                          capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (141, "")


def test_train_explains_variants_and_that_they_may_be_left_out(capsys):
    assert main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    assert "usage: proximo train [VARIANT]" in said and "may be left out" in said
    assert all(f"\n  {name} " in said for name in VARIANTS) and "proximo train --env-id LunarLander-v3" in said


@pytest.mark.parametrize("command,words,said", [
    ("list", ["foo"], "Unexpected argument 'foo': `proximo list` takes `presets` only.\n"),
    ("doctor", ["foo"], "foo is not the folder of a failed update. A run that ends with exit code 4 writes one: RUN/repro.\n"),
    ("doctor", ["--foo"], "Unexpected argument '--foo': `proximo doctor` takes RUN/repro only, the folder of an update that "
     "failed.\n"),
    ("doctor", ["RUN/repro", "--allow-import", "f.py"], "Unexpected argument '--allow-import': `proximo doctor` takes "
     "RUN/repro only, the folder of an update that failed.\n")])
def test_list_and_doctor_refuse_other_words(command, words, said, capsys):
    assert main([command, "--help"]) == 0 and f"usage: proximo {command}" in capsys.readouterr().out
    assert main([command, *words]) == 2
    assert capsys.readouterr().err == f"proximo: {said}"


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_doctor_fails_where_something_installed_is_broken(level, code, monkeypatch, capsys):
    monkeypatch.setattr("proximo.cli.doctor.doctor", lambda: [Finding(level, "the state of things")])
    assert main(["doctor"]) == code and "the state of things" in capsys.readouterr().out


def test_list_names_every_variant(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "ppo_atari_lstm" in said and "CartPole-v1" in said and "installed" in said


def test_resume_without_a_run_explains_itself(capsys):
    assert main(["resume", "--help"]) == 0
    said = capsys.readouterr().out
    assert "usage: proximo resume RUN" in said and max(map(len, said.splitlines())) <= 120
    may = said.replace("\n", " ").partition("A resume may change ")[2].partition(", and")[0].split(", ")
    assert {"total-timesteps", "gamma", "num-minibatches"} <= {*may} and not {"num-steps", "hidden-sizes", "seed"} & {*may}


PROGRAM = """
from dataclasses import dataclass, replace

from proximo import Config
from proximo.cli.commands import run_program
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.train import train


@dataclass(frozen=True)
class Mine(Config):
    width: int = 8
    total_timesteps: int = 320


def make_agent(spec, cfg):
    return assemble(spec, replace(cfg, hidden_sizes=(cfg.width, cfg.width)))


if __name__ == "__main__":
    run_program(Mine, train, make_gym, make_agent)
"""


def by_path(path, words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path), *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    return ended.value.code


@pytest.fixture
def program(tmp_path):
    """The file of a program with a network and a field of its own."""
    (tmp_path / "mine.py").write_text(PROGRAM)
    return tmp_path / "mine.py"


def test_a_program_may_have_a_loss_and_callbacks(program, tmp_path, monkeypatch):
    text = program.read_text().replace("run_program(Mine, train, make_gym, make_agent)", """
    from proximo import StopTraining
    from proximo.on_torch.loss import ppo_loss

    def half(batch, cfg):
        loss, stats = ppo_loss(batch, cfg)
        return loss / 2, stats | {"half": loss.detach() / 2}

    def stop(it):
        if it.iteration == 3:
            raise StopTraining("three")
        return {"mine": it.stats["losses/half"]}

    run_program(Mine, train, make_gym, make_agent, loss_fn=half, callbacks=[stop])
""".strip())
    program.write_text(text)
    assert by_path(program, [*SMALL, "--run-dir", str(tmp_path / "run")], monkeypatch) == 0
    rows_of_log = rows(tmp_path / "run", "metrics.csv")
    assert len(rows_of_log) == 3 and rows_of_log[0]["user/mine"] == rows_of_log[0]["losses/half"] != ""


def test_a_program_records_which_parts_are_its_own(program, tmp_path, monkeypatch, capsys):
    """Evaluations and exports with the variant's network would show another agent."""
    run = tmp_path / "run"
    assert by_path(program, [*SMALL, "--run-dir", str(run)], monkeypatch) == 0
    assert json.loads((run / "config.json").read_text())["own_parts"] == {"program": "mine.py", "make_agent": "make_agent"}
    capsys.readouterr()
    assert main(["eval", str(run)]) == 2 and "make_agent" in capsys.readouterr().err


def test_a_program_is_a_command(program, plain, tmp_path, monkeypatch, capsys):
    """`python mine.py --seed 2` equals `proximo train` with the same values; faults and --help too."""
    assert by_path(program, [*SMALL, "--width", "8", "--run-dir", str(tmp_path / "run")], monkeypatch) == 0
    assert same_weights(plain(""), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["variant"] == "ppo"
    assert by_path(program, ["--gamma", "2"], monkeypatch) == 2 and "gamma=2.0 must be" in capsys.readouterr().err
    assert by_path(program, ["--help"], monkeypatch) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python {program} ") and said.rstrip().endswith(f" more flags: python {program} --help-all")
    assert "--width" in said and "--preset" not in said  # which is refused
    assert by_path(program, ["--preset", "CartPole-v1"], monkeypatch) == 2
    assert by_path(program, ["resume"], monkeypatch) == 2
    assert f"needs the folder of a run: `python {program} resume RUN`." in capsys.readouterr().err


def test_a_program_trains_with_the_framework_of_its_loop(program, tmp_path, monkeypatch, capsys):
    """Another --framework was recorded, and had no effect; several seeds are refused because of the loop."""
    assert by_path(program, [*SMALL, "--framework", "jax", "--run-dir", str(tmp_path / "run")], monkeypatch) == 2
    assert "framework=jax, and this program trains with torch. Leave --framework out." in capsys.readouterr().err
    program.write_text(PROGRAM.replace("on_torch", "on_jax"))
    assert by_path(program, [*SMALL, "--run-dir", str(tmp_path / "run")], monkeypatch) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["framework"] == "jax"
    assert by_path(program, [*SMALL, "--num-seeds", "2", "--run-dir", str(tmp_path / "two")], monkeypatch) == 2
    assert "this program has a loop of its own. Start it once for each seed." in capsys.readouterr().err


def test_the_run_of_a_program_resumes_by_it(program, tmp_path, monkeypatch, capsys):
    """Stopped and continued, against the same run in one go; `proximo resume` names the command."""
    whole, half = tmp_path / "whole", tmp_path / "half"
    assert by_path(program, [*SMALL, "--width", "5", "--capture-video", "--run-dir", str(whole)], monkeypatch) == 0
    assert {x.shape[0] for name, x in weights(whole).items() if name.endswith("0.bias")} == {5}
    assert (whole / "videos" / "step-000000320.mp4").exists()
    at_iteration(monkeypatch, 5, terminate)
    assert by_path(program, [*SMALL, "--width", "5", "--run-dir", str(half)], monkeypatch) == 143
    assert f"Resume with: python {program} resume {half}\n" in capsys.readouterr().err
    assert main(["resume", str(half)]) == 2
    assert f"parts of its own. Resume it with: python {program} resume {half}\n" in capsys.readouterr().err
    assert by_path(program, ["resume", str(half), "--width", "6"], monkeypatch) == 2
    assert "width=6 was given" in capsys.readouterr().err
    assert by_path(program, ["resume", str(half)], monkeypatch) == 0
    assert same_weights(whole, half)


@pytest.mark.parametrize("cfg,local_processes,cores,workers", [
    (Atari(), 1, 2, 0), (Atari(), 1, 16, 8), (Atari(num_envs=6), 1, 4, 3), (Atari(), 2, 4, 0),
    (Atari(num_envs=7), 1, 4, 0), (Atari(engine="envpool"), 1, 8, 0), (Atari(env_workers=0), 1, 8, 0),
    (Atari(env_workers=4), 1, 8, 4), (Config(num_envs=8), 1, 8, 0)])
def test_emulators_run_on_every_core(monkeypatch, cfg, local_processes, cores, workers):
    """Against the rule of the field's help text: one worker a core where that divides the environments."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    assert resolve(cfg, "ppo_atari", 1, local_processes).env_workers == workers


def test_a_reader_that_leaves_is_no_fault():
    """`proximo list | head -1`, with a reader that has left before the first line: no traceback."""
    with subprocess.Popen([sys.executable, "-m", "proximo", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait(timeout=60) == 141


def test_train_and_resume_report_all_mistakes_at_once(tmp_path, capsys):
    """Wrong flags, values out of range and an unknown environment, also where no variant is named."""
    wrong = ["--foo", "1", "--gamma", "abc", "--seed"]
    assert main(["train", "--env-id", "Nope-v0", "--noop-max", "3", *wrong]) == 2
    mistakes = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in mistakes] == ["env_id=Nope-v0", "--foo", "--gamma", "--seed"]
    train(tmp_path / "run")
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run"), "--clip-coef", "-1", "--num-steps", "7", *wrong]) == 2
    mistakes = capsys.readouterr().err.splitlines()
    for start in ("--foo", "--gamma", "--seed", "clip_coef=", "num_steps=7 was given"):
        assert any(line.startswith(f"proximo: {start}") for line in mistakes), start


def test_words_of_a_call_may_be_paths_and_numbers(tmp_path, capsys):
    """proximo.train returns a path; it ended with a TypeError of tyro."""
    train(tmp_path / "run", "--env-id", "CartPole-v1")
    assert main(["eval", tmp_path / "run", "--episodes", 2]) == 0
    assert main("eval 'x") == 2
    assert "is one text. Pass a list of words, such as main(['eval'," in capsys.readouterr().err
