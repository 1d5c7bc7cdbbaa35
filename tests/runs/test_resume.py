"""Interrupted runs against the run that was left alone: bit-identical weights, no point of the log doubled or lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module

import gymnasium
import pytest
import torch

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import UsageError
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.logs.announce import announce_changes
from tests.support.probes import Memory, Truncated
from tests.support.runs import SMALL, CrashError, at_iteration, crash, rows, same_logs, same_weights, terminate, train


class Opaque(Truncated):
    """Holds an object that nobody knows how to keep: its runs rebuild their environments at each checkpoint."""

    def __init__(self):
        self.world = object()

    def observe(self):
        return self.np_random.random(2).astype("float32")


gymnasium.register("Opaque-v0", entry_point=Opaque)
gymnasium.register("Remembered-v0", entry_point=Memory)
gymnasium.register("Swing-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=20)

KINDS = {
    "cartpole": ("ppo", "--env-id CartPole-v1"), "normalised": ("ppo", "--env-id CartPole-v1 --norm-obs --norm-reward"),
    "lstm": ("ppo", "--env-id Remembered-v0 --recurrent lstm"), "gru-next": (
        "ppo", "--env-id CartPole-v1 --recurrent gru --autoreset next-step --norm-obs"),
    "masked": ("ppo", "--env-id tests.support.probes:Masked-v0"), "target-kl": ("ppo", "--env-id CartPole-v1 --target-kl 1e-4 --desired-kl 1e-3"),
    "structured": ("ppo", "--env-id tests.support.probes:Rich-v0 --norm-obs --recurrent lstm"),
    "camera": ("ppo", "--env-id tests.support.probes:Rich-v0 --grayscale --resize 12 --frame-stack 3"),
    "hybrid": ("ppo", "--env-id tests.support.probes:Hybrid-v0"),
    "continuous": ("ppo_continuous_action", "--env-id Swing-v0"), "rpo": ("rpo_continuous_action",
                                                                            "--env-id Swing-v0"),
    "gsde": ("ppo_continuous_action", "--env-id Swing-v0 --distribution gsde --sde-sample-freq 5 --layer-norm"),
    "beta": ("ppo_continuous_action", "--env-id Swing-v0 --distribution beta --anneal-lr cosine --anneal-clip"),
    "rebuilt": ("ppo", "--env-id Opaque-v0"), "rebuilt-normalised": (
        "ppo", "--env-id Opaque-v0 --norm-obs --norm-reward --recurrent lstm"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_crashed_ends_as_if_it_had_not(kind, tmp_path, monkeypatch, capsys):
    """Before the first checkpoint (2), right at one, before it is written (6), and between two (8)."""
    variant, words = KINDS[kind]
    assert train(tmp_path / "whole", *words.split(), variant=variant) == 0
    for number in (2, 6, 8):
        broken = tmp_path / f"broken-{number}"
        with monkeypatch.context() as patch, pytest.raises(CrashError):
            at_iteration(patch, number, crash)
            train(broken, *words.split(), variant=variant)
        assert not (broken / "summary.json").exists()
        assert main(["resume", str(broken), "--allow-import", "tests"]) == 0
        assert same_weights(tmp_path / "whole", broken) and same_logs(tmp_path / "whole", broken)
        assert ("again every 3" in capsys.readouterr().err) == kind.startswith("rebuilt")


@pytest.mark.parametrize("kind,kept", [("cartpole", 8), ("rebuilt", 6)])
def test_sigterm_leaves_cleanly(kind, kept, tmp_path, monkeypatch, capsys):
    """Saved at once where the environments' state is kept, else the last scheduled checkpoint stays; then as above."""
    variant, words = KINDS[kind]
    train(tmp_path / "whole", *words.split(), variant=variant)
    at_iteration(monkeypatch, 8, terminate)
    assert train(tmp_path / "stopped", *words.split(), variant=variant) == 128 + signal.SIGTERM
    left = "The newest checkpoint is of iteration 6. This run is saved at scheduled checkpoints only; its model is newer. " * (
        kept < 8)
    assert f"Stopped by SIGTERM after iteration 8. {left}Resume with: proximo resume" in capsys.readouterr().err
    assert checkpoints(tmp_path / "stopped")[-1].name == f"{kept:08d}"
    assert main(["resume", str(tmp_path / "stopped")]) == 0
    assert same_weights(tmp_path / "whole", tmp_path / "stopped")
    assert same_logs(tmp_path / "whole", tmp_path / "stopped")


def test_the_agent_of_a_stopped_run_can_be_used(tmp_path, monkeypatch):
    """Also before the first checkpoint, if the state of the environments cannot be saved. It was lost."""
    train(tmp_path / "whole", "--env-id", "Opaque-v0", "--checkpoint-every", "2", "--keep-checkpoints", "0")
    at_iteration(monkeypatch, 2, terminate)
    assert train(tmp_path / "stopped", "--env-id", "Opaque-v0") == 128 + signal.SIGTERM
    assert not checkpoints(tmp_path / "stopped")
    assert same_weights(tmp_path / "whole/checkpoints/00000002", tmp_path / "stopped")


@pytest.mark.long
@pytest.mark.parametrize("flags", ["", "--overlap --env-workers 2"])
def test_sigkill_of_a_process_twice(flags, tmp_path):
    """A real process of its own, killed once checkpoints appear; the reference run is made in this process, so this is
    also the test that the same seed gives the same bits in different processes."""
    words = [*SMALL, "--total-timesteps", "4800", "--checkpoint-every", "5", "--env-id", "CartPole-v1", *flags.split()]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main(["train", "ppo", *words, "--run-dir", str(whole)]) == 0
    for command in (["train", "ppo", *words, "--run-dir", str(broken)], ["resume", str(broken)]):
        before = len(list((broken / "checkpoints").glob("0*"))) and checkpoints(broken)[-1].name
        process = subprocess.Popen([sys.executable, "-m", "proximo", *command], stderr=subprocess.DEVNULL,
                                   env=os.environ | {"OMP_NUM_THREADS": "1"})
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            if (found := checkpoints(broken)) and found[-1].name != before:
                process.kill()
            time.sleep(0.005)
        assert process.wait() == -signal.SIGKILL
    assert checkpoints(broken)[-1].name < "00000150" and not (broken / "summary.json").exists()
    assert main(["resume", str(broken)]) == 0
    assert same_weights(whole, broken) and same_logs(whole, broken)
    assert [int(row["iteration"]) for row in rows(broken, "metrics.csv")] == list(range(1, 151))



def test_a_run_that_is_made_longer_loses_the_evaluation_of_its_earlier_weights(tmp_path):
    """A benchmark evaluates it again, and a report shows no score of other weights. Nothing to do: it stays."""
    run = tmp_path / "run"
    assert train(run) == 0
    (run / "eval.json").write_text("{}")
    assert main(["resume", str(run)]) == 0 and (run / "eval.json").exists()
    assert main(["resume", str(run), "--total-timesteps", "640"]) == 0
    assert not (run / "eval.json").exists() and (run / "summary.json").exists()


def test_workers_resume_exactly(tmp_path, monkeypatch):
    """The state of environments in other processes; and the same weights as without workers."""
    words = ("--env-id", "CartPole-v1", "--env-workers", "2", "--checkpoint-every", "2", "--total-timesteps", "128")
    train(tmp_path / "whole", *words[:2], *words[4:])
    at_iteration(monkeypatch, 3, crash)
    with pytest.raises(CrashError):
        train(tmp_path / "broken", *words)
    assert main(["resume", str(tmp_path / "broken")]) == 0
    assert same_weights(tmp_path / "whole", tmp_path / "broken")


def damage(path):
    """One bit of one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["tensors.safetensors", "tree.json", "manifest.json"])
def test_one_wrong_bit_falls_back_loudly(name, tmp_path, monkeypatch, capsys):
    train(tmp_path / "whole")
    at_iteration(monkeypatch, 8, crash)
    with pytest.raises(CrashError):
        train(tmp_path / "broken")
    damage(checkpoints(tmp_path / "broken")[-1] / name)
    assert main(["resume", str(tmp_path / "broken")]) == 0
    said = capsys.readouterr().err
    assert "The checkpoint before it is used" in said and "after iteration 3 of 10" in said
    assert same_weights(tmp_path / "whole", tmp_path / "broken") and same_logs(tmp_path / "whole", tmp_path / "broken")


def test_no_whole_checkpoint_is_no_new_start(tmp_path, monkeypatch, capsys):
    at_iteration(monkeypatch, 8, crash)
    with pytest.raises(CrashError):
        train(tmp_path / "broken")
    for path in checkpoints(tmp_path / "broken"):
        damage(path / "tensors.safetensors")
    before = rows(tmp_path / "broken", "metrics.csv")
    assert main(["resume", str(tmp_path / "broken")]) == 5
    assert "All 2 checkpoints in" in capsys.readouterr().err
    assert rows(tmp_path / "broken", "metrics.csv") == before


def test_a_finished_run_is_not_run_again(tmp_path, capsys):
    train(tmp_path / "run")
    summary = (tmp_path / "run" / "summary.json").read_text()
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert "all 10 iterations are done" in capsys.readouterr().err
    assert (tmp_path / "run" / "summary.json").read_text() == summary


@pytest.mark.parametrize("how", ["resume", "auto", "resume a seed", "resume both seeds"])
def test_a_finished_run_without_checkpoints_is_not_trained_again(how, tmp_path, capsys):
    """Its files stay as they are; more steps are refused."""
    run = tmp_path / "run"
    seeds = ("--num-seeds", 2, "--framework", "jax") if "seed" in how else ()
    if seeds:
        pytest.importorskip("flax")
    assert train(run, *seeds) == 0
    kept = [run / "seed-1", run / "seed-2"] if seeds else [run]
    for one in kept:
        shutil.rmtree(one / "checkpoints")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    target = run / "seed-1" if how == "resume a seed" else run
    assert (train(run, "--resume", "auto") if how == "auto" else main(["resume", str(target)])) == 0
    assert "finished after 320 steps. The checkpoints were removed" in capsys.readouterr().err
    assert main(["resume", str(target), "--total-timesteps", "640", "--learning-rate", "0.01"]) == 5
    assert "checkpoints were removed. It can be evaluated, but not trained longer" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_finished_run_can_be_made_longer(tmp_path, capsys):
    """The learning rate not annealed, so that the longer run's first half is the shorter run."""
    train(tmp_path / "long", "--no-anneal-lr", "--total-timesteps", 640)
    train(tmp_path / "short", "--no-anneal-lr")
    assert main(["resume", str(tmp_path / "short"), "--total-timesteps", "640"]) == 0
    assert "Changed: total_timesteps 320 -> 640" in capsys.readouterr().err
    assert same_weights(tmp_path / "long", tmp_path / "short") and same_logs(tmp_path / "long", tmp_path / "short")
    assert json.loads((tmp_path / "short" / "summary.json").read_text())["steps"] == 640
    assert json.loads((tmp_path / "short" / "config.json").read_text())["config"]["total_timesteps"] == 640


def test_a_learning_rate_that_rises_is_told(tmp_path, capsys):
    """2.5e-4 falls to a tenth in ten iterations, and is at 0.55 of its beginning after ten of twenty iterations."""
    train(tmp_path / "run")
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "480", "--no-anneal-lr", "--learning-rate", "2.5e-5"]) == 0
    assert "rises" not in capsys.readouterr().err
    train(tmp_path / "other")
    assert main(["resume", str(tmp_path / "other"), "--total-timesteps", "640"]) == 0
    assert "The learning rate rises from 2.5e-05 to 0.00013, because its schedule has changed." in capsys.readouterr().err


@pytest.mark.parametrize(("same", "words"), [
    (True, "`--no-anneal-lr --learning-rate 2.5e-05` continues with one value."), (False, "These numbers are those of the first run;")])
def test_a_rate_that_rises_in_several_runs_is_not_to_be_set_where_they_differ(same, words, caplog):
    """A resume of a sweep refused the flag that it had advised."""
    before = Config(total_timesteps=5120, anneal_lr=True)
    with caplog.at_level("INFO", "proximo"):
        announce_changes(before, replace(before, total_timesteps=10_240), {"state": {"iteration": 10}}, same)
    rises, = [message for message in caplog.messages if "rises" in message]
    assert words in rises and ("--learning-rate" in rises) == same


@pytest.mark.parametrize("changes, level", [({}, "WARNING"), ({"learning_rate": 1e-3}, "INFO")])
def test_a_learning_rate_that_rises_without_being_asked_for_is_a_warning(changes, level, caplog):
    """Programs show only warnings, unless they configure logging."""
    before = Config(total_timesteps=5120, anneal_lr=True)
    with caplog.at_level("INFO", "proximo"):
        announce_changes(before, replace(before, total_timesteps=10_240, **changes), {"state": {"iteration": 10}}, True)
    assert [record.levelname for record in caplog.records if "rises" in record.message] == [level]


@pytest.mark.parametrize("how", ["resume", "auto"])
def test_an_unfinished_run_does_not_end_before_what_it_has_played(how, tmp_path, monkeypatch, capsys):
    """It would look finished otherwise: a summary of a run that has trained for less than its config.json says."""
    run = tmp_path / "run"
    at_iteration(monkeypatch, 8, crash)
    with pytest.raises(CrashError):
        train(run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    words = ["resume", str(run)] if how == "resume" else ["train", "ppo", *SMALL, "--run-dir", str(run), "--resume", "auto"]
    capsys.readouterr()
    for total in ("96", "192"):
        assert main([*words, "--total-timesteps", total]) == 2
        assert capsys.readouterr().err == (
            f"proximo: total_timesteps={total} was given, but {run} has trained for 192 of 320 steps. Give at least 224, or "
            "leave --total-timesteps out.\n")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main([*words, "--total-timesteps", "224"]) == 0
    assert json.loads((run / "summary.json").read_text())["steps"] == 224
    (run / "summary.json").unlink()
    assert main([*words, "--total-timesteps", "96"]) == 0 and (run / "summary.json").exists()


def test_a_kill_between_the_last_checkpoint_and_the_end_loses_nothing(tmp_path, monkeypatch):
    """Once the last checkpoint is there, model and summary are: the order of writing, with a crash after each."""
    for place, count in (("save_latest_model", 4), ("write_json", 1), ("save_checkpoint", 4)):
        folder, calls = tmp_path / place, []
        with monkeypatch.context() as patch:
            real = getattr(import_module("proximo.runs.watcher"), place)

            def crashing(*arguments, real=real, calls=calls, count=count):
                real(*arguments)
                calls.append(1)
                if len(calls) == count:
                    raise CrashError

            patch.setattr(f"proximo.runs.watcher.{place}", crashing)
            with pytest.raises(CrashError):
                train(folder)
        assert main(["resume", str(folder)]) == 0
        assert (folder / "summary.json").exists() and len(rows(folder, "metrics.csv")) == 10


@pytest.mark.parametrize("words,names", [
    (["--hidden-sizes", "16", "16"], ["hidden_sizes=16 16 was given, but the run has hidden_sizes=8 8 and a resume cannot change it. Start a new run."]),
    (["--env-id", "Acrobot-v1", "--num-envs", "4"], ["env_id=Acrobot-v1 was given, but the run has env_id=CartPole-v1",
                                                    "num_envs=4 was given, but the run has num_envs=2"]),
    (["--recurrent", "lstm"], ["recurrent=lstm was given, but the run has recurrent=none"]),
    (["--env-workers", "2"], ["env_workers=2 was given, but the run has env_workers=0"]),
    (["--norm-obs", "--autoreset", "next-step"], ["norm_obs=True was given, but", "autoreset=next-step was given"]),
    (["--num-minibatches", "5"], ["batch_size=32 is not divisible by num_minibatches=5"]),
    (["--gama", "0.9"], ["--gama is not a flag of this variant. Did you mean --gamma"])])
def test_another_environment_or_network_is_refused(words, names, tmp_path, monkeypatch, capsys):
    at_iteration(monkeypatch, 4, crash)
    with pytest.raises(CrashError):
        train(tmp_path / "run")
    config = (tmp_path / "run" / "config.json").read_text()
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run"), *words]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in names)
    assert (tmp_path / "run" / "config.json").read_text() == config and len(checkpoints(tmp_path / "run")) == 1


def test_what_is_no_run_is_said(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 2 and "is not a run" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{")
    assert main(["resume", str(tmp_path)]) == 5 and "is not JSON" in capsys.readouterr().err
    assert main(["resume"]) == 2


@pytest.mark.parametrize("words,sentence", [
    (["--total-timesteps", "256"], "--total-timesteps is not a run. Name one first: proximo resume RUN --total-timesteps 256\n"),
    (["a", "b c"], "resume continues one folder, and a and b c were given. Resume one after the other"),
    ([""], "resume needs the folder of a run: `proximo resume RUN`.")])
def test_the_run_comes_first_and_alone(words, sentence, tmp_path, monkeypatch, capsys):
    """An empty name would be the current folder."""
    monkeypatch.chdir(tmp_path)
    train(tmp_path)
    before = (tmp_path / "config.json").read_text()
    capsys.readouterr()
    assert main(["resume", *words]) == 2
    assert capsys.readouterr().err.startswith(f"proximo: {sentence}") and (tmp_path / "config.json").read_text() == before


@pytest.mark.parametrize("words,sentence", [
    (["--device", "cuda"], "device=cuda was given, but the run has device=auto"),
    (["--num-seeds", "3"], "num_seeds=3 trains several"),
    (["--device-ids", "0", "1"], "--device-ids names 2 GPUs for 1 process"),
    (["--local-num-envs", "4"], "local_num_envs=4 was given, but the run has local_num_envs=None")])
@pytest.mark.skipif(torch.cuda.is_available(), reason="cuda works here")
def test_a_refused_resume_leaves_a_finished_run_as_it_was(words, sentence, tmp_path, capsys):
    """Also where it is refused late, when devices and processes are looked for."""
    train(tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "640", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    with pytest.raises(UsageError, match=sentence.partition(":")[0]):
        values = [int(word) for word in words[1:] if word.isdigit()] or words[1:]
        proximo.resume(tmp_path / "run", total_timesteps=640,
                       **{words[0][2:].replace("-", "_"): tuple(values) if len(values) > 1 else values[0]})
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
