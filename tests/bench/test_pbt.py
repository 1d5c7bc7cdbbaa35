"""Population-based training: who copies whom against the rule, and real runs that are killed, copied and compared."""

import json

import numpy as np
import pytest

from proximo import evaluate
from proximo.bench.jobs import Job
from proximo.bench.pbt import Round, copy_run, pbt, prune_checkpoints, score_of
from proximo.bench.population import change_value, first_members, load_population, next_members
from proximo.bench.process import record_path
from proximo.bench.space import draw_value
from proximo.bench.task import Ended
from proximo.cli.main import main
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.checkpoint import save_checkpoint
from proximo.runs.logs.trackers import STARTERS
from tests.support.full_disk import REASON, bytes_below, full_disk
from tests.support.runs import CrashError, at_iteration, crash, rows, same_logs, same_weights

FILE = """
variant = "ppo"
env_id = "CartPole-v1"
steps = 384
population = 4
rounds = 2
seed = 3
[overrides]
num_envs = 2
num_steps = 16
num_minibatches = 2
update_epochs = 1
hidden_sizes = [8, 8]
checkpoint_every = 2
keep_checkpoints = 0
[space]
learning_rate = {low = 1e-4, high = 1e-2, log = true}
"""


class HereHandle:
    """A task that has run in this process."""

    name = "here"

    def __init__(self, task):
        self.code = main(list(task.words[3:]))

    def poll(self):
        return Ended(self.code)


class HerePlace:
    """Starts `python -m proximo WORDS` as main(WORDS)."""

    def submit(self, tasks):
        return [HereHandle(task) for task in tasks]

    def recover(self, name):
        return None

    def close(self):
        pass


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "population.toml"
    path.write_text(FILE)
    return path


def population(tmp_path, text=FILE):
    path = tmp_path / "population.toml"
    path.write_text(text)
    return load_population(path)


def journal(folder):
    return json.loads((folder / "pbt.json").read_text())["rounds"]


def test_the_worst_quarter_copies_one_of_the_best_quarter_and_changes_its_values(tmp_path):
    found = population(tmp_path, FILE.replace("population = 4", "population = 8"))
    scores = [5.0, 1.0, 9.0, 3.0, None, 8.0, 4.0, 2.0]
    before = [one._replace(score=score) for one, score in zip(first_members(found), scores)]
    before[3] = before[3]._replace(failed=True, score=None)
    after = next_members(found, before, 2)
    assert [m for m, one in enumerate(after) if one.parent != m] == [3, 4], "who failed, and the worst of the others"
    for m, one in enumerate(after):
        if m in (3, 4):
            assert one.parent == 2 and one.seed == before[2].seed and not one.failed
            assert one.values["learning_rate"] != before[2].values["learning_rate"]
        else:
            assert one == before[m]._replace(parent=m, score=None)
    assert next_members(found, before, 2) == after != next_members(found, before, 3)
    equal = [one._replace(score=1.0) for one in before[:3] + before[4:] + before[:1]]
    assert [one.parent for one in next_members(found, equal, 2)] == [*range(8)], "nobody is worse than the best"


def test_who_is_as_good_as_one_of_the_best_quarter_copies_nobody(tmp_path):
    """The best quarter has two members here, and the second of them has the score of all others."""
    found = population(tmp_path, FILE.replace("population = 4", "population = 8"))
    before = [one._replace(score=9.0 if m == 3 else 5.0) for m, one in enumerate(first_members(found))]
    assert [one.parent for one in next_members(found, before, 2)] == [*range(8)]


def test_a_round_in_which_no_episode_has_ended_is_told(tmp_path, file, monkeypatch, caplog):
    """Each environment plays 96 steps in a round, and an episode has 200. Nobody is replaced, as nobody has a score. The first
    member fails at the end, and is not the best one."""
    def fail_at_the_end(run, *how):
        if run.parent.name == "member-00" and "round-002" in run.parts and (run / "summary.json").exists():
            raise FilesError("the disk is full")
        save_checkpoint(run, *how)

    monkeypatch.setattr("proximo.runs.watcher.save_checkpoint", fail_at_the_end)
    monkeypatch.setattr("proximo.bench.pbt.open_place", lambda where, folder: HerePlace())
    file.write_text(FILE.replace("CartPole-v1", "MountainCar-v0"))
    assert pbt(file, out=tmp_path / "out") == 0
    first, second = (one.message for one in caplog.records if "members that were replaced" in one.message)
    assert first.endswith("members that were replaced: 0") and "0 (no episode has ended in the round before" in second
    assert [one["failed"] for one in journal(tmp_path / "out")[1]] == [True, False, False, False]
    assert "member-01" in json.loads((tmp_path / "out" / "best.json").read_text())["run"]


def test_values_stay_in_their_range_and_are_drawn_or_changed_by_a_fifth():
    rng, floats, whole = np.random.default_rng(0), {"low": 1e-4, "high": 1e-1, "log": True}, {"low": 1, "high": 10}
    changed = [change_value(rng, floats, 1e-2) for _ in range(2000)]
    steps = np.isin(changed, (0.008, 0.012))
    assert 0.7 < steps.mean() < 0.8 and 0.45 < (np.array(changed)[steps] == 0.012).mean() < 0.55
    drawn = np.array(changed)[~steps]
    assert drawn.min() >= 1e-4 and drawn.max() <= 1e-1 and 0.4 < (drawn < 10**-2.5).mean() < 0.6
    assert change_value(np.random.default_rng(1), floats, 0.0999) <= 0.1
    ints = {change_value(rng, whole, 5) for _ in range(200)}
    assert ints <= set(range(1, 11)) and {4, 6} <= ints
    for value in (1, 2):  # 0.8 and 1.2 times them are rounded to the same number
        changed = [change_value(rng, {"low": 0, "high": 10**6}, value) for _ in range(400)]
        assert {one for one in changed if one < 10} == {value - 1, value + 1} and type(changed[0]) is int
    assert {change_value(rng, {"choices": ["a", "b"]}, "a") for _ in range(50)} == {"a", "b"}


def test_whole_numbers_of_a_range_are_drawn_equally_often():
    """Also the smallest and the largest one."""
    rng = np.random.default_rng(0)
    counts = np.bincount([draw_value(rng, {"low": 1, "high": 4}) for _ in range(4000)])
    assert counts[0] == 0 and len(counts) == 5 and all(900 < count < 1100 for count in counts[1:])


def test_whole_numbers_of_a_logarithmic_range_are_drawn_less_often_the_larger_they_are():
    """As Optuna draws them: a number n has the share of the logarithms from n - 1/2 to n + 1/2, also at the ends."""
    rng, numbers = np.random.default_rng(0), np.arange(1, 5)
    counts = np.bincount([draw_value(rng, {"low": 1, "high": 4, "log": True}) for _ in range(8000)])
    expected = np.log((numbers + 0.5) / (numbers - 0.5)) / np.log(9)
    assert counts[0] == 0 and counts[1:] / 8000 == pytest.approx(expected, abs=0.02)


def test_a_range_of_very_large_whole_numbers():
    """Such numbers are objects for numpy, which has no logarithm of them."""
    drawn = draw_value(np.random.default_rng(1), {"low": 1, "high": 10**30, "log": True})
    assert isinstance(drawn, int) and 1 <= drawn <= 10**30


def test_a_copy_is_its_source_without_what_says_that_it_has_finished(tmp_path):
    source, job = tmp_path / "source", Job("ppo", "CartPole-v1", 3, 64, "member-01", {})
    (source / "checkpoints" / "00000002").mkdir(parents=True)
    for name in ("config.json", "summary.json", ".lock", "checkpoints/00000002/tree.json"):
        (source / name).write_text(name)
    (tmp_path / "round" / job.folder.parent).mkdir(parents=True)
    copy_run(source, tmp_path / "round", job)
    run_dir = tmp_path / "round" / job.folder
    assert sorted(path.name for path in run_dir.iterdir()) == ["checkpoints", "config.json"]
    assert (run_dir / "checkpoints/00000002/tree.json").read_text() == "checkpoints/00000002/tree.json"
    assert json.loads(record_path(tmp_path / "round", job).read_text()) == {"key": job.key}
    (source / "config.json").write_text("changed")
    copy_run(source, tmp_path / "round", job)
    assert (run_dir / "config.json").read_text() == "config.json", "a copy that exists is complete"


def test_a_copy_on_a_full_disk_leaves_nothing(tmp_path):
    source, job = tmp_path / "source", Job("ppo", "CartPole-v1", 3, 64, "member-01", {})
    (source / "checkpoints").mkdir(parents=True)
    for name in ("config.json", "checkpoints/tree.json"):
        (source / name).write_text(name)
    (tmp_path / "round" / job.folder.parent).mkdir(parents=True)
    with full_disk(), pytest.raises(FilesError, match=f"could not be copied to .*{REASON}.*, then start the same command again"):
        copy_run(source, tmp_path / "round", job)
    assert bytes_below(tmp_path / "round") == {} and not list((tmp_path / "round").rglob(".*"))
    copy_run(source, tmp_path / "round", job)
    assert bytes_below(tmp_path / "round" / job.folder) == bytes_below(source)


def test_the_score_counts_the_episodes_of_the_round_only(tmp_path):
    lines = "".join(f"{step},0,{step / 10},7,1.0\n" for step in range(10, 1510, 10))
    (tmp_path / "episodes.csv").write_text("step,row,return,length,seconds\n" + lines)
    assert score_of(tmp_path, "episodic_return", 1480) == pytest.approx((149 + 150) / 2)
    assert score_of(tmp_path, "episodic_return", 0) == pytest.approx(np.mean(np.arange(51, 151)))
    assert score_of(tmp_path, "episodic_length", 0) == 7 and score_of(tmp_path, "episodic_return", 1500) is None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A population of real runs that keeps all checkpoints, and its file."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "population.toml").write_text(FILE)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("proximo.bench.pbt.prune_checkpoints", lambda done: None)
        patched.setattr("proximo.bench.pbt.open_place", lambda where, folder: HerePlace())
        assert pbt(folder / "population.toml", out=folder / "out") == 0
    return folder / "out"


def run_of(folder, number, members, m):
    return folder / f"round-{number:03}" / "CartPole-v1" / f"member-{m:02}" / str(members[m]["seed"])


def test_changed_values_are_used_and_a_copy_begins_like_its_source(undisturbed):
    """RLlib has ignored changed values of PPO (ray#62173): here the learning rate that the optimizer logs is that of the
    journal in every iteration of a round. A copy begins with the checkpoint of its source, bit for bit, and ends
    with other weights than the member that continues the same run."""
    first, second = journal(undisturbed)
    (copy,) = [m for m, member in enumerate(second) if member["parent"] != m]
    for m, member in enumerate(second):
        run, parent = run_of(undisturbed, 2, second, m), member["parent"]
        rates = [float(row["charts/learning_rate"]) for row in rows(run, "metrics.csv")]
        assert rates == [first[parent]["values"]["learning_rate"]] * 6 + [member["values"]["learning_rate"]] * 6
        source = run_of(undisturbed, 1, first, parent)
        assert rows(run, "metrics.csv")[:6] == rows(source, "metrics.csv")
        names = [path / "checkpoints" / "00000006" / "tensors.safetensors" for path in (run, source)]
        assert names[0].read_bytes() == names[1].read_bytes()
    parent = second[copy]["parent"]
    assert second[copy]["values"] != second[parent]["values"] == first[parent]["values"]
    assert not same_weights(run_of(undisturbed, 2, second, copy), run_of(undisturbed, 2, second, parent))
    best = json.loads((undisturbed / "best.json").read_text())
    assert best["value"] == max(member["score"] for member in second) and "round-002" in best["run"]


def test_the_score_of_a_round_counts_every_episode_since_the_run_before_ended(tmp_path, monkeypatch):
    """Calculated from episodes.csv. Rounds of 120 steps end with whole iterations of 96 rows: at 96, 192, 288 and 480."""
    monkeypatch.setattr("proximo.bench.pbt.open_place", lambda where, folder: HerePlace())
    text = FILE.replace("steps = 384", "steps = 480").replace("rounds = 2", "rounds = 4").replace(
        "num_steps = 16", "num_steps = 48")
    (tmp_path / "population.toml").write_text(text)
    assert pbt(tmp_path / "population.toml", out=tmp_path / "out") == 0
    begins, missed = (0, 96, 192, 288), 0
    for number, members in enumerate(journal(tmp_path / "out"), 1):
        for m, member in enumerate(members):
            episodes = [(int(row["step"]), float(row["return"])) for row in
                        rows(run_of(tmp_path / "out", number, members, m), "episodes.csv")]
            assert member["score"] == pytest.approx(np.mean([x for step, x in episodes if step > begins[number - 1]]))
            missed += sum(begins[number - 1] < step <= 120 * (number - 1) for step, _ in episodes)
    assert missed > 0


def test_a_population_that_was_killed_in_mid_round_ends_like_an_undisturbed_one(undisturbed, tmp_path, file, monkeypatch,
                                                                                capsys):
    """Killed while the first run of the second round was three iterations past its copy: every weight, log line and
    journal entry is the same. A finished population does nothing. Only the newest round has checkpoints; runs of the first
    cannot be resumed."""
    monkeypatch.setattr("proximo.bench.pbt.open_place", lambda where, folder: HerePlace())
    with monkeypatch.context() as patched:
        at_iteration(patched, 9, crash)
        with pytest.raises(CrashError):
            pbt(file, out=tmp_path / "out")
    assert len(list((tmp_path / "out/round-001").rglob("checkpoints/00000006"))) == 4
    assert len(journal(tmp_path / "out")) == 1 and len(list((tmp_path / "out/round-002").rglob("config.json"))) == 4
    assert pbt(file, out=tmp_path / "out") == 0
    assert journal(tmp_path / "out") == journal(undisturbed)
    for number, members in enumerate(journal(undisturbed), 1):
        for m in range(4):
            one, other = (run_of(folder, number, members, m) for folder in (undisturbed, tmp_path / "out"))
            assert same_weights(one, other) and same_logs(one, other)
    assert [len(list((tmp_path / "out" / f"round-00{number}").rglob("0*/tree.json"))) for number in (1, 2)] == [0, 24]
    pruned = run_of(tmp_path / "out", 1, journal(undisturbed)[0], 0)
    assert main(["resume", str(pruned), "--total-timesteps", "999"]) == 5
    assert same_weights(pruned, run_of(undisturbed, 1, journal(undisturbed)[0], 0))
    assert f"The checkpoints of {pruned} were removed when a later round" in capsys.readouterr().err
    before = (tmp_path / "out" / "pbt.json").stat().st_mtime_ns
    assert pbt(file, out=tmp_path / "out") == 0 and (tmp_path / "out" / "pbt.json").stat().st_mtime_ns == before


def test_a_member_that_was_killed_before_its_last_checkpoint_is_trained_to_its_end(undisturbed, tmp_path, file, monkeypatch):
    """Its summary is written first. The member that copied it went on from an older checkpoint, or from step 0."""
    (parent,) = [one["parent"] for m, one in enumerate(journal(undisturbed)[1]) if one["parent"] != m]

    def save_or_crash(run, *how):
        if run.parent.name == f"member-{parent:02}" and (run / "summary.json").exists():
            crash()
        save_checkpoint(run, *how)

    monkeypatch.setattr("proximo.bench.pbt.open_place", lambda where, folder: HerePlace())
    with monkeypatch.context() as patched:
        patched.setattr("proximo.runs.watcher.save_checkpoint", save_or_crash)
        with pytest.raises(CrashError):
            pbt(file, out=tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("summary.json"))) == parent + 1
    assert pbt(file, out=tmp_path / "out") == 0 and journal(tmp_path / "out") == journal(undisturbed)
    for m in range(4):
        one, other = (run_of(folder, 2, journal(undisturbed)[1], m) for folder in (undisturbed, tmp_path / "out"))
        assert same_weights(one, other) and same_logs(one, other)


def test_a_member_whose_last_checkpoint_cannot_be_written_has_failed(tmp_path, file, monkeypatch):
    """It is not tried again and again; the others go on."""
    tries = []

    def fail_at_the_end(run, *how):
        if run.parent.name == "member-01" and (run / "summary.json").exists():
            tries.append(run)
            raise FilesError("the disk is full")
        save_checkpoint(run, *how)

    monkeypatch.setattr("proximo.bench.pbt.open_place", lambda where, folder: HerePlace())
    monkeypatch.setattr("proximo.runs.watcher.save_checkpoint", fail_at_the_end)
    assert pbt(file, out=tmp_path / "out") == 0
    assert [one["failed"] for one in journal(tmp_path / "out")[0]] == [False, True, False, False] and len(tries) <= 2


def test_the_score_may_be_an_evaluation_after_each_round(tmp_path, file, monkeypatch):
    """Killed between two evaluations of the second round: none that is done is repeated. Every score is the mean of the
    returns that the model of that run earns in 100 deterministic episodes, and who copies whom follows from them."""
    played = []

    class Place(HerePlace):
        def submit(self, tasks):
            played.extend(task.run_dir for task in tasks if task.words[3] == "eval")
            if len(played) == 7 and len(set(played)) == 7:
                crash()
            return super().submit(tasks)

    monkeypatch.setattr("proximo.bench.pbt.open_place", lambda where, folder: Place())
    file.write_text(FILE.replace("seed = 3", 'seed = 3\nmetric = "evaluation"'))
    with pytest.raises(CrashError):
        pbt(file, out=tmp_path / "out")
    assert pbt(file, out=tmp_path / "out") == 0
    assert len(played) == 9 and len(set(played)) == 8, "only the evaluation that was killed is started twice"
    first, second = journal(tmp_path / "out")
    for number, members in enumerate((first, second), 1):
        for m, member in enumerate(members):
            run = run_of(tmp_path / "out", number, members, m)
            found = evaluate(run, episodes=100, seed=0)
            assert member["score"] == pytest.approx(np.mean(found.returns))
    scores = [member["score"] for member in first]
    copies = [m for m, member in enumerate(second) if member["parent"] != m]
    assert copies == [int(np.argmin(scores))] and second[copies[0]]["parent"] == int(np.argmax(scores))


@pytest.mark.parametrize("linked", ["CartPole-v1", "CartPole-v1/member-00", "CartPole-v1/member-00/7", "CartPole-v1/member-00/7/checkpoints"])
def test_no_checkpoint_is_removed_through_a_link(linked, tmp_path):
    """The folder may be a stranger's, and lead to another run."""
    run = tmp_path / "round-001" / "CartPole-v1" / "member-00" / "7"
    newest = run / "checkpoints" / "00000006"
    newest.mkdir(parents=True)
    job = Job("ppo", "CartPole-v1", 7, 192, "member-00", {})
    rounds = [Round(number=number, folder=tmp_path / f"round-00{number}", members=[], jobs=[job]) for number in (1, 2)]
    path = tmp_path / "round-001" / linked
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FilesError, match="is a symbolic link"):
        prune_checkpoints(rounds)
    assert newest.exists()
    path.unlink()
    (tmp_path / "elsewhere").rename(path)
    prune_checkpoints(rounds)
    assert not newest.exists()


@pytest.mark.parametrize("change,sentence", [
    (("learning_rate = {low = 1e-4, high = 1e-2, log = true}", "num_envs = {low = 1, high = 4}"),
     "num_envs cannot change while a run trains. Use some of learning_rate,"),
    (("num_envs = 2", 'num_envs = 2\nanneal_lr = "linear"'), "anneal_lr=linear needs the end of training"),
    (("num_envs = 2", 'num_envs = 2\nanneal_ent = "linear"'), "anneal_ent=linear needs the end of training"),
    (("[overrides]", 'metric = "evaluation"\n[overrides]\neval_every = 64\neval_env_kwargs = ["sutton=True"]'),
     "overrides: eval_env_kwargs is for evaluations during training, but metric"),
    (("[overrides]", 'metric = "eval"\n[overrides]'), "metric='eval' is not allowed"),
    (("num_envs = 2", "num_envs = 2\ntrack = true"), "wandb cannot log a population"),
    *((("num_envs = 2", f'num_envs = 2\nlogger = "{name}"'), f"{name} cannot log a population") for name in STARTERS),
    (("population = 4", "population = 3"), "population=3 is not allowed. Use 4 to 1000."),
    (("rounds = 2", "rounds = 20"), "steps=384 in 20 rounds are 19 for each: total_timesteps=19 is less"),
    (("[space]", "[space]\nupdate_epochs = {low = 1, high = 4}"), "update_epochs is in [overrides] and in [space]. Leave it out"),
    (("[space]", "[space]\nseed = {choices = [1, 2]}"), "space: seed is set by the key seed. Leave it out of [space]."),
    (("num_envs = 2", 'num_envs = 2\nenv_id = "A-v0"'), "overrides: env_id is set by the key env_id. Leave it out of [overrides]."),
    (("seed = 3", "sed = 3"), "sed is unknown"), (("learning_rate", "gama"), "ppo has no field gama"),
    ((FILE[FILE.index("num_minibatches"):FILE.index("learning_rate")], "[space]\nnum_minibatches = {low = 2, high = 8}\n"), "num_minibatches cannot become 3, 5, 6, 7: batch_size=32 "
     "is not divisible by num_minibatches=3. Use 1, 2, 4, 8, 16. Narrow the range, or list the values that work"),
    (("[space]", "[space]\nmax_grad_norm = {low = 1, high = 5}"), "max_grad_norm would get whole numbers only, because both bounds are."),
    (("[space]", "[space]\ngamma = {low = 0.9, high = 1.5}"), "gamma cannot become 1.5: gamma=1.5 must be between 0 and 1."),
    (("[space]", '[space]\nnorm_adv = {choices = ["none", "all"]}'), "norm_adv cannot become all: norm_adv='all' is not"),
    (('"ppo"', '"pp"'), "variant='pp' is unknown"), (("steps = 384", 'steps = "many"'), "steps='many' is not allowed")])
def test_what_cannot_work_is_refused(tmp_path, change, sentence, capsys):
    path = tmp_path / "population.toml"
    path.write_text(FILE.replace(*change))
    assert main(["pbt", str(path), "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_range_of_too_many_whole_numbers_is_refused_at_once(tmp_path):
    """Every value is checked, as docs/searches.md says: a billion would take a month."""
    space = "[space]\nupdate_epochs = {low = 1, high = %d}\n"
    text = FILE.replace("update_epochs = 1\n", "").replace("[space]\n", space)
    with pytest.raises(UsageError, match=r"space: update_epochs has 1,000,000,000 values. Use a range of at most 1,000"):
        population(tmp_path, text % 10**9)
    assert population(tmp_path, text % 50).space["update_epochs"]["high"] == 50


def test_an_empty_title_is_the_name_of_the_file(tmp_path):
    assert population(tmp_path, 'title = ""\n' + FILE).name == "population"


def test_another_population_in_the_folder_is_refused(file, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    record = {"variant": "ppo", "env_id": "CartPole-v1", "steps": 384, "population": 4, "rounds": 3, "seed": 3,
              "metric": "episodic_return", "overrides": {}, "space": {}}
    (tmp_path / "out" / "pbt.json").write_text(json.dumps({"file": record, "rounds": []}))
    assert main(["pbt", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "contains another population: rounds=3 instead of 2, overrides={}" in capsys.readouterr().err
    record |= {"rounds": 2, "overrides": load_population(file).overrides, "space": load_population(file).space}
    for rounds, sentence in (("[", "is not JSON"), ([[]], "has other members than 4 with values of learning_rate"),
                             ([5], "rounds 1=5 is not allowed")):
        text = rounds if rounds == "[" else json.dumps({"file": record, "rounds": rounds})
        (tmp_path / "out" / "pbt.json").write_text(text)
        assert main(["pbt", str(file), "--out", str(tmp_path / "out")]) == 5
        assert sentence in capsys.readouterr().err
