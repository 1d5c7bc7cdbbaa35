"""The commands on what is there already: what they say, write and refuse."""

import json
import shutil
from pathlib import Path

import pytest

from proximo.cli.main import main
from proximo.errors import FilesError
from proximo.models.plot import plot
from tests.support.full_disk import bytes_below, full_disk
from tests.support.runs import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run of CartPole."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(folder) == 0
    return folder


def test_drawing_that_fails_ends_watch_but_not_training(tmp_path, capsys):
    words = ("--env-id", "tests.models.test_evaluate:Unlucky-v0")
    assert train(tmp_path, *words, "--capture-video", "--total-timesteps", 64) == 0
    said = capsys.readouterr().err
    assert "No video: tests.models.test_evaluate:Unlucky-v0: render raised" in said and "Done" in said
    assert main(["watch", str(tmp_path), "--allow-import", "tests"]) == 3
    assert "render raised RuntimeError: the screen is on fire" in capsys.readouterr().err


def test_a_video_that_cannot_be_written_does_not_end_training(tmp_path, monkeypatch, capsys):
    """As where the disk is full, or ffmpeg dies."""
    def fail(frames, path, fps):
        raise FilesError("the disk is full")

    monkeypatch.setattr("proximo.models.video.write_video", fail)
    assert train(tmp_path, "--capture-video", "--total-timesteps", 64) == 0
    assert "No video: the disk is full" in capsys.readouterr().err


def test_where_a_video_cannot_be_written_is_said(run, capsys):
    assert main(["watch", str(run), "--out", "/proc/x/y.mp4"]) == 5
    assert "/proc/x/y.mp4 could not be written" in capsys.readouterr().err


def test_an_evaluation_on_a_full_disk_leaves_the_older_file(run, tmp_path, capsys):
    words = ["eval", str(run), "--episodes", "1", "--json", str(tmp_path / "e.json")]
    assert main(words) == 0
    before = bytes_below(tmp_path)
    with full_disk():
        assert main([*words, "--seed", "1"]) == 5
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"proximo: {tmp_path / 'e.json'} could not be written") and "--run-dir" not in said
    assert bytes_below(tmp_path) == before


@pytest.mark.parametrize("words,wanted", [
    ("eval {} --episodes 0 --seed -1 --max-steps 0 --num-envs 0",
     ["--episodes 0 must be at least 1", "--seed -1 must be at least 0", "--max-steps 0 must be at least 1",
      "--num-envs 0 must be at least 1"]),
    ("watch {} --episodes 0 --out foo.txt", ["--episodes 0 must be at least 1", "foo.txt is neither an .mp4 nor a .gif"]),
    ("watch {} --seed -1 --max-frames 0 --out {}", ["--seed -1 must be at least 0", "--max-frames 0 must be at least 1",
                                                    "--out {} is a folder. Name a file in it: {}/watch.mp4"]),
    ("eval {} --episodes 1000001", ["--episodes 1000001 must be at most 1000000"]),
    ("eval none --episodes 0 --json {}", ["--episodes 0 must be at least 1", "none is not a run: there is no such folder.",
                                          "--json {} is a folder. Name a file in it: {}/eval.json"]),
    ("watch none --max-frames 0", ["--max-frames 0 must be at least 1", "none is not a run: there is no such folder."]),
    ("rate none --rounds 0", ["--rounds 0 must be at least 1", "none is not a run: there is no such folder."]),
    ("card none --seed -1", ["--seed -1 must be at least 0", "none is not a run: there is no such folder."]),
    ("export none --to foo", ["none is not a run: there is no such folder.", "--to foo is not a format"]),
    ("plot none nothing --window -1 --out a.foo", ["--window -1 must be", "a.foo does not end in a format of pictures: ",
                                                  "none neither is nor contains a run", "nothing neither is nor"]),
    ("plot {} --out /", ["--out / is a folder. Name a file in it: /curves.png"]),
    ("plot {} --out .", ["--out . is a folder. Name a file in it: curves.png"]),
    ("plot {} --window -3", ["--window -3 must be at least 0"])])
def test_numbers_out_of_range_are_refused_all_at_once(run, words, wanted, capsys):
    assert main(words.format(run, run).split()) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(wanted)
    assert all(line.startswith(f"proximo: {want.format(run, run)}") for line, want in zip(said, wanted))


def test_a_picture_needs_a_name(run, capsys):
    """An empty name is the current folder."""
    assert main(["plot", str(run), "--out", ""]) == 2
    assert capsys.readouterr().err == "proximo: --out . is a folder. Name a file in it: curves.png\n"
    with pytest.raises(FilesError, match="/ is a folder. Give the name of a file"):
        plot([run], Path("/"))


def test_an_evaluation_without_an_end_names_the_flag(tmp_path, capsys):
    """Nothing is written, and it is no success; where some episodes end, the others are said to be missing."""
    assert train(tmp_path / "endless", "--env-id", "tests.support.probes:Endless-v0") == 0
    words = ["eval", str(tmp_path / "endless"), "--max-steps", "20", "--json", str(tmp_path / "eval.json"),
             "--allow-import", "tests"]
    assert main(words) == 2 and not (tmp_path / "eval.json").exists()
    assert "no episode ended within 20 steps. Allow more with --max-steps N" in capsys.readouterr().err
    assert train(tmp_path / "uneven", "--env-id", "tests.models.test_evaluate:Uneven-v0") == 0
    assert main(["eval", str(tmp_path / "uneven"), "--episodes", "16", "--max-steps", "20", "--allow-import", "tests"]) == 0
    assert "Only 8 of 16 episodes ended within 20 steps" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "watch", "rate", "resume", "plot"])
def test_a_folder_that_does_not_exist_is_a_usage_error(command, capsys, tmp_path):
    assert main([command, str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.startswith(f"proximo: {tmp_path / 'nothing'} ")


def test_plot_says_what_is_missing(capsys):
    assert main(["plot", "--window", "5"]) == 2
    assert "at least one folder of a run: proximo plot RUN..." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "watch", "rate"])
def test_the_folder_of_several_seeds_names_a_run(command, run, tmp_path, capsys):
    for name in ("seed-2", "seed-10"):
        shutil.copytree(run, tmp_path / name)
    assert main([command, str(tmp_path)]) == 2
    assert f"contains 2 runs. Name one of them, such as {tmp_path / 'seed-2'}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def selfplay(tmp_path_factory):
    """A small run of Pong by self-play, with an LSTM and three checkpoints."""
    pytest.importorskip("multi_agent_ale_py")
    pytest.importorskip("openskill")
    folder = tmp_path_factory.mktemp("selfplay") / "run"
    assert train(folder, *SELFPLAY, "--total-timesteps", 96, variant="ppo_pettingzoo_ma_atari") == 0
    return folder


SELFPLAY = ("--checkpoint-every", 1, "--max-cycles", 400, "--env-workers", 0, "--model", "mlp", "--screen-size", 36,
            "--recurrent", "lstm")


def test_eval_tells_players_apart(selfplay, tmp_path, capsys):
    """In a zero-sum game the mean over both is 0 whatever they do."""
    words = ["eval", str(selfplay), "--episodes", "1", "--no-deterministic"]  # a player who never serves loses points
    assert main([*words, "--json", str(tmp_path / "eval.json")]) == 0
    said, kept = capsys.readouterr().out, json.loads((tmp_path / "eval.json").read_text())
    left, right = (kept["players"][name] for name in ("player0", "player1"))
    assert left["episodes"] == right["episodes"] == 2 and kept["episodes"] == 4
    assert left["episodic_return_mean"] == -right["episodic_return_mean"]
    assert f"player0 {left['episodic_return_mean']:.2f} +- {left['episodic_return_std']:.2f}, player1 " in said


def test_rate_repeats_by_its_seed_and_takes_the_newest(selfplay, capsys):
    """The same seed gives the same games; --most 1 rates the last checkpoint."""
    games = []
    for _ in range(2):
        assert main(["rate", str(selfplay), "--rounds", "1", "--most", "1"]) == 0
        games.append(json.loads((selfplay / "rating" / "rating.json").read_text())["games"])
    assert "96 steps" in capsys.readouterr().out
    assert games[0] == games[1]
    assert {game["first"] for game in games[0]} == {"random", "96 steps"}


def test_rate_refuses_what_it_cannot_rate(selfplay, tmp_path, capsys):
    """Numbers out of range leave an older rating as it was; a game of four is said to be one."""
    assert main(["rate", str(selfplay), "--rounds", "0", "--most", "-1", "--seed", "-1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"proximo: --{flag} must be at least {least}" for flag, least in (("rounds 0", 1), ("most -1", 1),
                                                                          ("seed -1", 0))]
    words = (*SELFPLAY, "--env-id", "warlords_v3", "--num-envs", 4, "--total-timesteps", 64)
    assert train(tmp_path, *words, variant="ppo_pettingzoo_ma_atari") == 0
    capsys.readouterr()
    assert main(["rate", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "proximo: this game has 4 players. Only games of two players can be rated.\n"


NIM = """
import gymnasium
import numpy as np

from proximo.envs.parallel_env import from_parallel_env


class Nim:
    metadata = {"name": "nim"}
    possible_agents = [f"player_{k}" for k in range(PLAYERS)]

    def __init__(self):
        space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.space = gymnasium.spaces.Dict(seen=space, action_mask=gymnasium.spaces.Box(0, 1, (4,), np.int8))

    unwrapped = property(lambda self: self)

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(4)    # wait, or take one to three

    def see(self):
        return {agent: {"seen": np.array([self.left / 7, turn], np.float32), "action_mask": np.array(
            [not turn, *(turn and n <= self.left for n in (1, 2, 3))], np.int8)}
            for agent in self.agents for turn in [agent == self.agents[self.turn]]}

    def reset(self, seed=None, options=None):
        self.agents, self.left, self.turn = self.possible_agents[:], 7, 0
        return self.see(), {}

    def step(self, actions):
        acting, agents = self.agents[self.turn], self.agents
        taken = [int(action) for action in actions.values()]
        assert sum(taken) == taken[self.turn] > 0, taken    # who has to wait waits
        self.left, self.turn = self.left - sum(taken), (self.turn + 1) % len(agents)
        over, seen = self.left == 0, self.see()
        self.agents = [] if over else agents
        return (seen, {agent: over * (1.0 if agent == acting else -1.0) for agent in agents},
                dict.fromkeys(agents, over), dict.fromkeys(agents, False), {})

    def close(self):
        pass


make_envs = from_parallel_env(Nim)
"""


def rate_nim(folder, players):
    """Train in a game of some players, and rate the run; returns the exit code of that."""
    (folder / f"nim{players}.py").write_text(NIM.replace("PLAYERS", str(players)))
    words = ("--env-file", folder / f"nim{players}.py", "--num-envs", 2 * players, "--keep-checkpoints", 0)
    assert train(folder / str(players), *words, "--checkpoint-every", 1, "--total-timesteps", 96 * players) == 0
    return main(["rate", str(folder / str(players)), "--allow-import", str(folder / f"nim{players}.py")])


def test_rate_takes_games_of_a_file_and_their_masks(tmp_path, capsys):
    """The game stops with an error at an action that its mask forbids. One of three players is refused."""
    pytest.importorskip("openskill")
    assert rate_nim(tmp_path, players=2) == 0
    kept = json.loads((tmp_path / "2" / "rating" / "rating.json").read_text())
    assert [one["name"] for one in kept["ratings"]] == ["random", "64 steps", "128 steps", "192 steps"]
    assert all(game["return0"] == -game["return1"] != 0 for game in kept["games"])
    assert rate_nim(tmp_path, players=3) == 2
    assert "this game has 3 players. Only games of two players can be rated." in capsys.readouterr().err


def test_ratings_are_not_lost_where_they_cannot_be_written(tmp_path, capsys):
    """They are printed before they are written. A folder that is refused is refused before the games."""
    pytest.importorskip("openskill")
    assert rate_nim(tmp_path, players=2) == 0
    capsys.readouterr()
    (tmp_path / "file").write_text("")
    words = ["rate", str(tmp_path / "2"), "--rounds", "1", "--allow-import", str(tmp_path / "nim2.py"), "--out"]
    assert main([*words, str(tmp_path / "file" / "rating")]) == 5
    assert sorted(line.strip().split("  ")[0] for line in capsys.readouterr().out.splitlines()) == [
        "128 steps", "192 steps", "64 steps", "random"]
    (tmp_path / "link").symlink_to(tmp_path)
    assert main([*words, str(tmp_path / "link")]) == 5 and not capsys.readouterr().out


def test_rate_of_several_runs(tmp_path, capsys, monkeypatch):
    """The newest agents of runs with other networks and normalisation play in one game; each pair from both sides."""
    pytest.importorskip("openskill")
    (tmp_path / "nim.py").write_text(NIM.replace("PLAYERS", "2"))
    words = ("--env-file", tmp_path / "nim.py", "--num-envs", 4, "--checkpoint-every", 1, "--total-timesteps", 128)
    for name, more in {"a": (), "b": ("--recurrent", "gru"), "c": ("--norm-obs",)}.items():
        assert train(tmp_path / name / "seed1", *words, *more) == 0
    monkeypatch.chdir(tmp_path)
    runs = ["a/seed1", "b/seed1", str(tmp_path / "c" / "seed1")]
    capsys.readouterr()
    assert main(["rate", *runs, "--allow-import", "nim.py"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "rating/rating.png"
    kept = json.loads((tmp_path / "rating" / "rating.json").read_text())
    assert [(one["name"], one["run"]) for one in kept["ratings"]] == [
        ("random", ""), *((f"{name}/seed1, 128 steps", f"{name}/seed1") for name in "abc")]
    pairs = [(game["first"], game["second"]) for game in kept["games"]]
    assert len(pairs) == 24 and len({*pairs}) == 12 and {(two, one) for one, two in pairs} == {*pairs}
    assert main(["rate", *runs[:2], "--most", "2", "--rounds", "1", "--out", "both", "--allow-import", "nim.py"]) == 0
    assert [one["steps"] for one in json.loads((tmp_path / "both" / "rating.json").read_text())["ratings"]] == [
        None, 64, 128, 64, 128]


def test_rate_refuses_runs_of_other_games(tmp_path, selfplay, run, capsys):
    """A setting of the game that differs is named; so is a run that is given twice, also by another path."""
    words = (*SELFPLAY, "--num-envs", 4, "--total-timesteps", 64, "--frame-stack", 2)
    assert train(tmp_path / "stacked", *words, variant="ppo_pettingzoo_ma_atari") == 0
    (tmp_path / "file").touch()
    capsys.readouterr()
    assert main(["rate", str(selfplay), str(tmp_path / "stacked"), str(run)]) == 2
    one, two = capsys.readouterr().err.splitlines()
    assert one == f"proximo: {tmp_path / 'stacked'} and {selfplay} cannot play against each other: frame_stack is 2 " \
                  "in the one and 4 in the other. Give runs of the same game."
    assert two.startswith(f"proximo: {run} is a run of ppo in CartPole-v1, which has one player.")
    again = selfplay / ".." / selfplay.name
    assert main(["rate", str(selfplay), str(again), "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"proximo: {again} is given twice. Give each run once.",
        f"proximo: --out {tmp_path / 'file'} is a file. Name a folder."]
    assert main(["rate", "--rounds", "2"]) == 2
    assert capsys.readouterr().err == "proximo: rate needs folders of runs: `proximo rate RUN...`. `proximo rate " \
                                      "--help` explains it.\n"


def test_rate_refuses_an_environment_of_one_player(run, capsys):
    assert main(["rate", str(run)]) == 2
    assert "in CartPole-v1, which has one player. Only runs of self-play can be rated: ppo_pettingzoo_ma_atari, and " \
           "files with from_parallel_env." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "profile"])
def test_a_file_to_write_is_checked_before_anything_is_played(command, run, tmp_path, capsys):
    """Not after a hundred episodes."""
    words = {"eval": ["eval", str(run)], "profile": ["profile", "CartPole-v1"]}[command]
    assert main([*words, "--json", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert f"--json {tmp_path} is a folder. Name a file in it: {tmp_path / f'{command}.json'}" in said.err and not said.out


def test_a_file_that_cannot_be_written_is_no_matter_of_the_run_dir(run, tmp_path, capsys):
    (tmp_path / "afile").write_text("")
    assert main(["eval", str(run), "--episodes", "1", "--json", str(tmp_path / "afile" / "eval.json")]) == 5
    said = capsys.readouterr().err
    assert "Remove the file that is in the place of the folder, or choose another file with --json." in said
