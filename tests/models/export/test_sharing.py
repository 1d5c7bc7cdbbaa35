"""Cards, sharing and verifying: with folders, and with a server on this machine that speaks the API of the Hub."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.cli.main import main
from proximo.errors import FilesError, UsageError
from proximo.models.export import shared
from proximo.models.export.card import Score, confirms, copy_video, score_of
from proximo.models.export.card_text import card_text, without_folder
from proximo.models.export.hub import Repository, hub_errors
from tests.support.full_disk import bytes_below, full_disk
from tests.support.hub import COMMIT, TOKEN, hub_server
from tests.support.models import random_model
from tests.support.runs import train

ACTING = "tests.support.probes:Acting-v0"
ALLOW = ["--allow-import", "tests.support.probes"]


@pytest.fixture(scope="module")
def carded(tmp_path_factory):
    """A run with a card: 20 episodes of sampled actions, so that the score has an interval."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    assert train(folder, "--capture-video", "--checkpoint-every", "10") == 0
    assert main(["card", str(folder), "--episodes", "20", "--no-deterministic", "--seed", "3"]) == 0
    return folder


def copied(run, tmp_path):
    return Path(shutil.copytree(run, tmp_path / "run"))


def changed(run, tmp_path, **values):
    """A copy of the run whose eval.json has other values."""
    folder = copied(run, tmp_path)
    path = folder / "model" / "eval.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def test_a_card_lists_what_was_chosen_and_writes_large_returns_short():
    """Not the numbers of threads and worker processes, which every run has. All episodes of it are in eval.json."""
    record = {"interval": [9.87e11, 1.0123456789e12], "episodic_return_mean": 1e12, "episodic_return_std": 1234.5,
              "episodes": 20, "deterministic": True, "seed": 1}
    page = card_text(random_model(spaces.Discrete(2), obs_shape=(4,), threads=2, env_workers=0, gamma=0.9), record, {}, [])
    assert "| gamma | 0.9 |" in page and "threads" not in page and "env_workers" not in page
    assert "**Mean return 1e+12** (95 % interval 9.87e+11 to 1.01235e+12)" in page and "1e+12 +/- 1234.50" in page


def test_the_interval_is_that_of_the_mean():
    """Against mean plus and minus 1.96 standard errors of many returns; equal returns have no width."""
    values = np.random.default_rng(1).normal(10, 3, 400)
    score, error = score_of(values), values.std() / 20
    assert np.allclose([score.mean, score.low, score.high], values.mean() + 1.96 * error * np.array([0, -1, 1]), atol=0.05)
    assert score_of([500.0] * 9) == (500, 500, 500) and score_of([500.0] * 9).holds(500.00001)
    assert score.holds(score.low) and not score.holds(score.high + 0.01)


def test_a_card_has_score_command_versions_curve_and_video(carded):
    """The front matter is read by a YAML parser and by the Hub's own package."""
    record, page = (carded / "model" / "eval.json"), (carded / "model" / "README.md").read_text()
    record = json.loads(record.read_text())
    low, high = record["interval"]
    assert low < record["episodic_return_mean"] < high and len(record["returns"]) == record["episodes"] == 20
    again = proximo.evaluate(carded, episodes=20, deterministic=False, seed=3)
    assert again.returns == record["returns"]
    assert f"**Mean return {np.mean(again.returns):.2f}** (95 % interval {low:.2f} to {high:.2f})" in page
    assert "num_envs | 2" in page and "torch" in page and str(carded) not in page
    for name in ("curve.png", "replay.mp4"):
        assert f"]({name})" in page and (carded / "model" / name).stat().st_size > 1000
    repocard = pytest.importorskip("huggingface_hub")
    data = repocard.ModelCard(page).data
    assert data.library_name == "proximo" and {"CartPole-v1", "reinforcement-learning", "ppo"} <= {*data.tags}
    (result,) = data.eval_results
    assert result.metric_type == "mean_reward" and result.dataset_name == "CartPole-v1"
    assert result.metric_value == f"{np.mean(again.returns):.2f} +/- {np.std(again.returns):.2f}"


def test_a_video_that_leads_out_of_the_run_does_not_become_public(tmp_path):
    """The newest video is a link to a private file, and another one is still being written."""
    videos = tmp_path / "run" / "videos"
    videos.mkdir(parents=True)
    (videos / "old.mp4").write_bytes(b"old")
    os.utime(videos / "old.mp4", (1, 1))
    (tmp_path / "private").write_bytes(b"private")
    (videos / "new.mp4").symlink_to(tmp_path / "private")
    (videos / ".new.tmp.mp4").write_bytes(b"half")
    assert copy_video(tmp_path / "run", tmp_path) == ["replay.mp4"]
    assert (tmp_path / "replay.mp4").read_bytes() == b"old"


@pytest.mark.parametrize("video", [True, False])
def test_a_full_disk_leaves_the_older_card(video, carded, tmp_path, capsys):
    """The video is copied first; without one, the page and the score are what cannot be written."""
    run = copied(carded, tmp_path)
    if not video:
        shutil.rmtree(run / "videos")
    before = bytes_below(run)
    with full_disk():
        assert main(["card", str(run), "--episodes", "2"]) == 5
    said = capsys.readouterr().err.splitlines()
    assert said[-1].endswith(", then write the card again.") and not any("--" in line for line in said), said
    assert bytes_below(run) == before


def test_push_pull_and_verify_through_a_folder(carded, tmp_path, capsys):
    """The pulled model has the same bytes, plays the same, and its card holds."""
    assert main(["push", str(carded), str(tmp_path / "shared")]) == 0 and main(["push", str(carded), str(tmp_path / "shared")]) == 0
    assert main(["pull", str(tmp_path / "shared"), str(tmp_path / "pulled")]) == 0
    said = capsys.readouterr().out
    assert "Its card claims" in said and "over 20 episodes of 'CartPole-v1'" in said
    for path in (tmp_path / "shared").iterdir():
        assert path.read_bytes() == (tmp_path / "pulled" / "model" / path.name).read_bytes() == (carded / "model" / path.name).read_bytes()
    assert main(["verify", str(tmp_path / "pulled")]) == 0 and "the card holds" in capsys.readouterr().out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_card_that_does_not_hold(carded, tmp_path, capsys):
    """A score that the model does not reach: 1. A mean that is not that of the returns, other weights, no numbers: faults."""
    better = [500.0] * 20
    folder = changed(carded, tmp_path / "a", returns=better, episodic_return_mean=500.0, interval=[500.0, 500.0])
    assert main(["verify", str(folder)]) == 1 and "THE CARD DOES NOT HOLD" in capsys.readouterr().out
    for i, (values, code, words) in enumerate([
            ({"episodic_return_mean": 500.0}, 2, "contradicts itself: the mean of its returns is"),
            ({"interval": [499.0, 500.0]}, 2, "contradicts itself: the lower end of the interval of its returns is"),
            ({"returns": [0.0, 1000.0]}, 2, "it has 2 returns, and says that it has those of 20 episodes out of 20"),
            ({"episodes_asked": 10}, 2, "20 episodes out of 10"), ({"weights_sha256": "0"}, 2, "belongs to other weights"),
            ({"returns": [float("nan")] * 20}, 5, "out of range"), ({"episodes_asked": 10**9}, 5, "out of range"),
            ({"returns": "many"}, 5, "returns='many' is not allowed"), ({"seed": None}, 5, "seed=None is not allowed")]):
        assert main(["verify", str(changed(carded, tmp_path / str(i), **values))]) == code
        assert words in capsys.readouterr().err


def test_a_claim_with_a_large_spread_is_no_confirmation(carded, tmp_path, capsys):
    """Returns were made up so that their wide interval contains the score of the agent: its episodes do not reach the mean."""
    returns = [0.0] * 18 + [5000.0] * 2
    score = score_of(returns)
    folder = changed(carded, tmp_path, returns=returns, episodic_return_mean=score.mean, interval=[score.low, score.high])
    now = np.mean(json.loads((carded / "model" / "eval.json").read_text())["returns"])
    assert score.holds(now) and main(["verify", str(folder)]) == 1 and "THE CARD DOES NOT HOLD" in capsys.readouterr().out
    assert confirms(Score(500.0, 500.0, 500.0), Score(499.0, 498.0, 500.0)), "more than was claimed"
    assert not confirms(Score(499.0, 498.0, 500.0), Score(500.0, 500.0, 500.0))
    assert confirms(Score(499.5, 499.0, 500.0), Score(499.6, 499.1, 500.0))


def test_what_was_pulled_imports_nothing_that_is_not_allowed(tmp_path, capsys):
    random_model(spaces.Discrete(2), spaces.Box(-1, 1, (2,)), env_id=ACTING).save(tmp_path / "model")
    assert main(["card", str(tmp_path / "model"), "--episodes", "8"]) == 2
    assert main(["card", str(tmp_path / "model"), "--episodes", "8", *ALLOW]) == 0
    page = (tmp_path / "model" / "README.md").read_text()
    assert f"\nproximo verify agent {' '.join(ALLOW)} # plays" in page and f"The environment needs `{ALLOW[1]}`, which" in page
    assert main(["push", str(tmp_path / "model"), str(tmp_path / "shared")]) == 0
    assert main(["pull", str(tmp_path / "shared"), str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "run")]) == 2
    assert "names the module tests.support.probes" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "run"), *ALLOW]) == 0


def test_only_regular_files_of_known_names_and_sizes_are_taken(carded, tmp_path, monkeypatch, capsys):
    model = copied(carded, tmp_path) / "model"
    (model / "evil.pkl").write_bytes(b"pickle")
    shared.pull(model, tmp_path / "pulled")
    assert not (tmp_path / "pulled" / "model" / "evil.pkl").exists()
    (model / "curve.png").unlink()
    (model / "curve.png").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match=r"curve.png, which is no regular file"):
        shared.pull(model, tmp_path / "linked")
    assert main(["card", str(model.parent), "--episodes", "1"]) == 5 and "is a symbolic link" in capsys.readouterr().err
    (model / "curve.png").unlink()
    monkeypatch.setitem(shared.SIZES, "tree.json", 10)
    with pytest.raises(UsageError, match=r"tree.json of .* bytes, and 10 are allowed"):
        shared.pull(model, tmp_path / "large")
    monkeypatch.undo()
    (model / "tree.json").write_text("{}")
    with pytest.raises(FilesError, match="damaged"):
        shared.pull(model, tmp_path / "damaged")
    (model / "tree.json").unlink()
    with pytest.raises(UsageError, match=r"has no tree.json: it is not a model of Proximo"):
        shared.pull(model, tmp_path / "less")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pulled", "run"]


@pytest.mark.parametrize("name,fault,said", [
    ("eval.json", lambda data: b"", "eval.json is not JSON"), ("eval.json", lambda data: data[:100], "eval.json is not JSON"),
    ("eval.json", lambda data: b"{}", "eval.json: env_id is missing."), ("README.md", lambda data: b"\n", "README.md is empty.")])
def test_a_damaged_card_is_not_shared(name, fault, said, carded, tmp_path, capsys):
    card = copied(carded, tmp_path) / "model" / name
    card.write_bytes(fault(card.read_bytes()))
    assert main(["push", str(tmp_path / "run"), str(tmp_path / "shared")]) == 5
    assert said in (lines := capsys.readouterr().err) and "The card is damaged, so nothing was shared. Write it again" in lines
    assert not (tmp_path / "shared").exists()


def test_a_pull_that_fails_leaves_no_folder_and_names_the_source(carded, tmp_path, capsys):
    model = copied(carded, tmp_path) / "model"
    (model / "tree.json").write_text("{}")
    for source in (tmp_path / "none", model):
        assert main(["pull", str(source), str(tmp_path / "a" / "b" / "c")]) in (2, 5)
        said = capsys.readouterr().err
        assert said.startswith(f"proximo: {source}") and [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_damaged_card_is_not_pulled(carded, tmp_path, capsys):
    """Otherwise the model would lie there after an error, and the command could not be repeated."""
    model = copied(carded, tmp_path) / "model"
    (model / "eval.json").write_text("{}")
    assert main(["pull", str(tmp_path / "run"), str(tmp_path / "new")]) == 5
    assert f"{model / 'eval.json'}: env_id is missing" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("words,said", [
    (["push", "none", "new"], "none is not a run: there is no such folder."),
    (["push", "RUN", "hub:nobody"], "hub:nobody is not a repository of the Hugging Face Hub. Write hub:USER/NAME."),
    (["push", "RUN", "OTHER"], "OTHER exists and is not a shared model. Name another folder."),
    (["pull", "RUN", "OTHER"], "OTHER exists already and is not an empty folder"), (["pull", "none", "new"], "there is no such folder"),
    (["push", "BARE", "new"], "has no card, which says what the model is"), (["verify", "BARE"], "has no card. Write one with"),
    (["card", "none"], "is not a run"), (["card", "RUN", "--episodes", "0"], "--episodes 0 must be at least 1")])
def test_words_that_cannot_work(words, said, carded, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "OTHER").mkdir()
    (tmp_path / "OTHER" / "thesis.txt").write_text("mine")
    random_model(spaces.Discrete(2), spaces.Box(-1, 1, (4,))).save(tmp_path / "BARE")
    assert main([str(carded) if word == "RUN" else word for word in words]) in (2, 5)
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["BARE", "OTHER"]


PROGRAM = """
import sys
from proximo.cli.main import main
run, endpoint = sys.argv[1:]
print([main(words) for words in (["push", run, "hub:me/cart", "--private"], ["pull", "hub:me/cart", "pulled"],
                                 ["pull", "hub:me/other", "other"], ["pull", "hub:me/big", "big"])])
"""


def test_push_and_pull_through_the_hub(carded, tmp_path):
    """With huggingface_hub against a server on this machine (commits of files; large-file storage is the package's)."""
    pytest.importorskip("huggingface_hub")
    with hub_server() as server:
        server.repos["me/big"] = {"tree.json": b"{}", "manifest.json": b"{}", "tensors.safetensors": b"", "x.pkl": b""}
        server.sizes["me/big", "tensors.safetensors"] = 2**40

        def run(token):
            env = os.environ | {"HF_ENDPOINT": server.endpoint, "HF_TOKEN": token, "HF_HOME": str(tmp_path / "home"),
                                "PYTHONPATH": os.getcwd(), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            return subprocess.run([sys.executable, "-c", PROGRAM, str(carded), server.endpoint], capture_output=True, text=True,
                                  env=env, cwd=tmp_path)

        done = run(TOKEN)
        assert "[0, 0, 2, 2]" in done.stdout, done.stdout + done.stderr
        assert done.stdout.startswith(f"{server.endpoint}/me/cart\npulled\n  Its card claims") and server.private["me/cart"]
        assert "hub:me/other: the Hub refuses" in done.stderr and "1,099,511,627,776 bytes" in done.stderr
        files = {path.name: path.read_bytes() for path in (carded / "model").iterdir()}
        assert server.repos["me/cart"] == files
        assert {path.name: path.read_bytes() for path in (tmp_path / "pulled" / "model").iterdir()} == files
        assert {path.name for path in tmp_path.iterdir()} - {"home"} == {"pulled"}
        (commit,) = {words[5] for words in server.asked if words[2:4] == ["me", "cart"] and words[4:5] == ["tree"]}
        assert commit == COMMIT == {words[3] for words in server.asked if words[2:3] == ["resolve"]}.pop()
        assert not any(words[:2] == ["me", "big"] for words in server.asked), "refused by the listing, before a download"
        assert "hub:me/cart: the Hub refuses" in (refused := run("wrong").stderr) and "HF_TOKEN" in refused


def test_a_hub_that_cannot_be_reached():
    """The package tries for many seconds before it raises."""
    pytest.importorskip("huggingface_hub")
    with pytest.raises(FilesError, match=r"hub:me/x: the Hub cannot be reached \(ConnectionError: refused\). Check the network"), \
            hub_errors(Repository("me/x")):
        raise ConnectionError("refused\nmore")


def test_a_full_disk_is_no_fault_of_the_hub():
    pytest.importorskip("huggingface_hub")
    with pytest.raises(OSError, match="No space left") as caught, hub_errors(Repository("me/x")):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not isinstance(caught.value, FilesError)


@pytest.mark.parametrize("given, shown", [
    ("proximo train ppo --env-file=/home/me/my_env.py --seed 1", "proximo train ppo --env-file=my_env.py --seed 1"),
    ("proximo train ppo --env-file /home/me/my_env.py:Env", "proximo train ppo --env-file my_env.py:Env"),
    ("/home/me/train.py --run-dir runs/a --gamma 0.9", "train.py --gamma 0.9"),
    ("proximo train ppo --init-from runs/a/b", "proximo train ppo --init-from runs/a/b")])
def test_the_command_of_a_card_has_no_folders_of_programs(given, shown):
    assert without_folder(given) == shown
