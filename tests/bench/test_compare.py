"""Compare two sets of runs with known scores."""

import json

import numpy as np
import pytest
from scipy import stats

from proximo.bench.compare import compare, compare_sides
from proximo.bench.report.main import report
from proximo.bench.report.published import published_for
from proximo.bench.report.tables import compare_to_published, results_table
from proximo.bench.results import differing_settings, evaluations_of, group_runs, read_runs, scores_of, steps_of
from proximo.bench.text import steps_text
from proximo.cli.main import main
from proximo.errors import UsageError

pytest.importorskip("rliable")


def write_runs(place, scores, env_id="CartPole-v1", gamma=0.99, more_config=None, **more):
    """Write one finished run per score, with seeds 1, 2, ...; their label comes from their settings."""
    for seed, score in enumerate(scores, 1):
        run_dir = place / f"{env_id}__{gamma}__{seed}"
        run_dir.mkdir(parents=True)
        (run_dir / "config.json").write_text(json.dumps({"variant": "ppo", "config": {
            "env_id": env_id, "seed": seed, "total_timesteps": 1000, "gamma": gamma} | (more_config or {})}))
        (run_dir / "summary.json").write_text(json.dumps({
            "variant": "ppo", "env_id": env_id, "seed": seed, "steps": 1000, "episodic_return_mean": score,
            "sps": 100.0, "wall_seconds": 10} | more))


OLD = np.array([10.0, 12.0, 11.0, 13.0, 9.0, 10.5])


def test_a_regression_ends_with_code_1_and_its_environment(tmp_path, capsys):
    """B is worse by 3 +- 0.5 on every seed. The p value is compared with scipy's paired test."""
    new = OLD - 3 + np.array([0.5, -0.5, 0.2, -0.2, 0.1, 0.0])
    write_runs(tmp_path / "a", OLD)
    write_runs(tmp_path / "b", new)
    text, worse = compare(tmp_path / "a", tmp_path / "b")
    assert worse and "regression: CartPole-v1" in text
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "regression: CartPole-v1" in capsys.readouterr().out
    found = compare_sides(tmp_path / "a", tmp_path / "b", "")[0][0]
    assert found.pairs == 6
    assert found.p_worse == pytest.approx(stats.ttest_rel(new, OLD, alternative="less").pvalue)
    assert found.difference.value == pytest.approx((new - OLD).mean())
    assert found.difference.high < 0 and found.improvement.value < 0.2


def test_equal_or_better_runs_end_with_code_0(tmp_path, capsys):
    """Identical runs and better runs are not a regression."""
    for name, scores in (("a", OLD), ("same", OLD), ("better", OLD + 5)):
        write_runs(tmp_path / name, scores)
    for name in ("same", "better"):
        assert main(["compare", str(tmp_path / "a"), str(tmp_path / name)]) == 0
        assert "no significant regression" in capsys.readouterr().out


def test_a_failed_run_of_the_new_side_ends_with_code_1(tmp_path, capsys):
    """Its environment has no finished run there, so that no comparison would mention it."""
    for name in ("a", "b"):
        write_runs(tmp_path / name, OLD)
    write_runs(tmp_path / "a", OLD, env_id="Acrobot-v1")
    failed = tmp_path / "b" / "Acrobot-v1" / "ppo"
    failed.mkdir(parents=True)
    (failed / "1.job.json").write_text(json.dumps({
        "variant": "ppo", "env_id": "Acrobot-v1", "label": "ppo", "seed": 1, "status": "failed", "lines": "killed"}))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "failed: Acrobot-v1 (ppo), seed 1" in capsys.readouterr().out


@pytest.mark.parametrize("evaluation,code", [
    (None, 1), ({"episodes": 100}, 0), ({"episodes": 100, "deterministic": False}, 1), ({"deterministic": True}, 1)])
def test_a_run_whose_evaluation_failed_is_a_failed_run(evaluation, code, tmp_path, capsys):
    """Its training has a score; eval.json is missing, there because the user has evaluated by hand, of other actions, or
    incomplete."""
    for name in ("a", "b"):
        write_runs(tmp_path / name, OLD)
    run = tmp_path / "b" / "CartPole-v1__0.99__2"
    run.with_name(f"{run.name}.job.json").write_text(json.dumps(
        {"seed": 2, "status": "failed", "stage": "eval", "deterministic": True, "lines": "out of memory"}))
    if evaluation:
        (run / "eval.json").write_text(json.dumps(evaluation))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == code
    assert ("failed: CartPole-v1 (ppo), seed 2" in capsys.readouterr().out) == bool(code)
    page = report(tmp_path / "b", tmp_path / "page.html").read_text()
    assert f"; {code} failed, 0 unfinished." in page and ("out of memory" in page) == bool(code)


def test_a_damaged_file_is_told_once(tmp_path, capsys):
    for name in ("a", "b"):
        write_runs(tmp_path / name, OLD)
        damaged = tmp_path / name / "CartPole-v1__0.99__1" / "eval.json"
        damaged.write_text("{")
    compare(tmp_path / "a", tmp_path / "b")
    said = capsys.readouterr().err
    assert [said.count(f"{tmp_path / name}/CartPole-v1__0.99__1/eval.json is not JSON") for name in "ab"] == [1, 1]


def test_runs_pair_by_seed_not_by_order(tmp_path):
    """B has no seed 1: five pairs remain, and each difference is between equal seeds."""
    write_runs(tmp_path / "a", OLD)
    write_runs(tmp_path / "b", OLD + 1)
    (tmp_path / "b" / "CartPole-v1__0.99__1" / "summary.json").unlink()
    found = compare_sides(tmp_path / "a", tmp_path / "b", "")[0][0]
    assert found.pairs == 5
    assert found.difference == pytest.approx((1, 1, 1))


def test_two_flags_pair_where_each_side_has_one_label(tmp_path):
    """gamma 0.99 against gamma 0.9: the labels differ, but environments and seeds are equal."""
    write_runs(tmp_path / "a", OLD)
    write_runs(tmp_path / "b", OLD, gamma=0.9)
    found = compare_sides(tmp_path / "a", tmp_path / "b", "")[0][0]
    assert (found.old_label, found.new_label) == ("ppo", "ppo-gamma=0.9")


def test_a_setting_that_both_sides_have_begun_has_no_other_partner(tmp_path, caplog):
    """The new side is in progress: of its two settings, only the one that the old side does not have has finished."""
    write_runs(tmp_path / "a", OLD)
    write_runs(tmp_path / "b", OLD - 5, gamma=0.9)
    write_runs(tmp_path / "b", OLD)
    for path in (tmp_path / "b").glob("*0.99*/summary.json"):
        path.unlink()
    with pytest.raises(UsageError, match="have no environment with two common seeds"):
        compare(tmp_path / "a", tmp_path / "b")
    assert "CartPole-v1: only one side has finished runs of ppo, ppo-gamma=0.9. They are left out." in caplog.text


def test_settings_that_cannot_be_paired_are_not_blamed_on_the_seeds(tmp_path):
    """Two settings on each side, which a flag has changed: all seeds are common, but no setting is."""
    for name, changed in (("a", {}), ("b", {"gae_lambda": 0.9})):
        for num_envs in (4, 8):
            write_runs(tmp_path / name / str(num_envs), OLD, more_config={"num_envs": num_envs} | changed)
    with pytest.raises(UsageError, match="no setting of .* is one of .*Give the rows of the benchmark file a label"):
        compare(tmp_path / "a", tmp_path / "b")


def test_several_environments_are_corrected_for(tmp_path):
    """Three environments, one of them with p = 0.03 before Holm's correction: none is a regression."""
    for k in range(2):
        write_runs(tmp_path / "a", OLD, f"Env{k}-v0")
        write_runs(tmp_path / "b", OLD, f"Env{k}-v0")
    noise = np.random.default_rng(0).normal(0, 1, 6)
    p, new = next((p, new) for s in np.linspace(0, 3, 300) for new in [OLD + noise - s]
                  if (p := stats.ttest_rel(new, OLD, alternative="less").pvalue) < 0.03)
    write_runs(tmp_path / "a", OLD, "Env2-v0")
    write_runs(tmp_path / "b", new, "Env2-v0")
    found = compare_sides(tmp_path / "a", tmp_path / "b", "")[0]
    assert min(one.p_worse for one in found) == pytest.approx(3 * p) and 3 * p > 0.05


def test_self_play_is_compared_by_the_length_of_games(tmp_path):
    """The metric can be chosen."""
    write_runs(tmp_path / "a", OLD, episodic_length_mean=5.0)
    write_runs(tmp_path / "b", OLD, episodic_length_mean=6.0)
    assert compare_sides(tmp_path / "a", tmp_path / "b", "episodic_length")[0][0].difference.value == pytest.approx(1)


def test_what_a_run_filled_in_is_no_difference(tmp_path):
    """Worker processes and threads depend on the machine; num_envs follows from local_num_envs."""
    write_runs(tmp_path / "a", OLD, more_config={"env_workers": 0, "threads": 1, "num_envs": 4})
    write_runs(tmp_path / "b", OLD, more_config={"env_workers": 2, "threads": 2, "num_envs": 4})
    found = compare_sides(tmp_path / "a", tmp_path / "b", "")[0][0]
    assert (found.old_label, found.new_label) == ("ppo", "ppo")
    write_runs(tmp_path / "two", OLD, more_config={"local_num_envs": 4, "num_envs": 8})
    assert read_runs(tmp_path / "two")[0].label == "ppo-local_num_envs=4"
    write_runs(tmp_path / "kl", OLD, more_config={"target_kl": 0.01})
    assert read_runs(tmp_path / "kl")[0].label == "ppo-target_kl=0.01"


def test_runs_that_were_to_train_longer_are_another_setting(tmp_path):
    """None is left out as a repetition of another one, and no mean is over both lengths. One length is no part of a name."""
    write_runs(tmp_path / "a" / "short", OLD)
    assert {run.label for run in read_runs(tmp_path / "a")} == {"ppo"}
    write_runs(tmp_path / "a" / "long", OLD + 100, more_config={"total_timesteps": 9000}, steps=9000)
    groups = group_runs(read_runs(tmp_path / "a"))
    assert {label: [run.score() for run in runs] for (_, label), runs in groups.items()} == {
        "ppo-total_timesteps=1000": [*OLD], "ppo-total_timesteps=9000": [*OLD + 100]}
    write_runs(tmp_path / "b" / "short", OLD, more_config={"gamma": 0.9})
    write_runs(tmp_path / "b" / "long", OLD, more_config={"gamma": 0.9, "total_timesteps": 9000})
    assert {run.label for run in read_runs(tmp_path / "b")} == {"ppo-gamma=0.9,total_timesteps=1000",
                                                                "ppo-gamma=0.9,total_timesteps=9000"}


def test_one_label_with_several_settings_is_several_groups(tmp_path, caplog):
    """Two benchmarks may call different settings by one name. What the machine chose, or a file does not say, is no difference."""
    def write(folder, scores, **config):
        write_runs(tmp_path / folder, scores, gamma=config.get("gamma", 0.99), more_config=config)
        for run in (tmp_path / folder).iterdir():
            run.with_name(f"{run.name}.job.json").write_text('{"label": "mine"}')

    write("a", OLD, gamma=0.9, framework="torch", threads=1, device="cpu", num_envs=4)
    assert {run.label for run in read_runs(tmp_path)} == {"mine"}
    write("b", OLD + 1, gamma=0.9, framework="jax", threads=2, device="cuda", num_envs=4)
    write("c", OLD + 2, gamma=0.5, framework="torch")
    with caplog.at_level("INFO", logger="proximo"):
        groups = group_runs(read_runs(tmp_path))
    assert {label: [run.score() for run in runs] for (_, label), runs in groups.items()} == {
        "mine-framework=torch,gamma=0.9": [*OLD], "mine-framework=jax,gamma=0.9": [*OLD + 1],
        "mine-framework=torch,gamma=0.5": [*OLD + 2]}
    assert "is left out" not in caplog.text
    for run in (tmp_path / "c").glob("*.job.json"):
        run.write_text('{"label": "mine-changed_norm_adv", "ablates": "norm_adv"}')
    write_runs(tmp_path / "d", OLD, gamma=0.7)
    for run in (tmp_path / "d").iterdir():
        run.with_name(f"{run.name}.job.json").write_text('{"label": "mine-changed_norm_adv", "ablates": "norm_adv"}')
    assert {run.label for run in read_runs(tmp_path) if run.ablates} == {
        "mine-gamma=0.5-changed_norm_adv", "mine-gamma=0.7-changed_norm_adv"}


def test_a_run_that_a_callback_ended_counts_with_the_steps_that_it_has_trained(tmp_path, caplog):
    """It is not compared with a published score of the planned length, and its length is said. A run that trained the whole
    iterations of its plan has the planned length."""
    published = next(row for row in published_for("ppo", "CartPole-v1") if row.protocol == "training" and not row.differs)
    batch = {"num_envs": 4, "num_steps": 128, "total_timesteps": published.steps}
    write_runs(tmp_path / "whole", OLD, more_config=batch, steps=published.steps // 512 * 512)
    write_runs(tmp_path / "early", OLD, more_config=batch, steps=1024)
    lengths = {}
    for name in ("whole", "early"):
        (runs,) = group_runs(read_runs(tmp_path / name)).values()
        lengths[name] = {steps_of(run) for run in runs}
        assert bool(compare_to_published(runs, published).word) == (name == "whole")
    assert lengths == {"whole": {published.steps}, "early": {1024}}
    write_runs(tmp_path / "mixed" / "early", OLD[:1], more_config=batch, steps=1024)
    write_runs(tmp_path / "mixed" / "whole", OLD, more_config=batch, steps=published.steps)
    (tmp_path / "mixed" / "whole" / "CartPole-v1__0.99__1" / "config.json").unlink()
    mixed = group_runs(read_runs(tmp_path / "mixed"))
    assert results_table(mixed).rows[0][3] == f"1.024k to {steps_text(published.steps)}"
    (runs,) = mixed.values()
    assert compare_to_published(runs[::-1], published).reason == f"published for {steps_text(published.steps)} steps"
    compare_sides(tmp_path / "whole", tmp_path / "early", "")
    assert f"the runs have different lengths (1024, {published.steps} steps)" in caplog.text


@pytest.mark.parametrize("field", ["num_envs", "num_steps"])
@pytest.mark.parametrize("value", [None, "x", [1], {}, 0.5])
def test_a_size_of_another_type_is_a_damaged_file(field, value, tmp_path, caplog):
    """The length of a run is read from it. The file is ignored, and the run is another setting."""
    write_runs(tmp_path / "a", OLD, more_config={"num_envs": 4, "num_steps": 128})
    damaged = tmp_path / "a" / "CartPole-v1__0.99__2" / "config.json"
    damaged.write_text(json.dumps({"variant": "ppo", "config": {"num_envs": 4, "num_steps": 128, "seed": 2, field: value}}))
    assert sorted(steps_of(run) for run in read_runs(tmp_path / "a")) == [1000] * 6
    assert f"{damaged}: config.{field}=" in caplog.text and "The file is ignored" in caplog.text


def test_an_unknown_metric_is_answered_with_the_known_ones(tmp_path):
    """The message must not blame the seeds."""
    write_runs(tmp_path / "a", OLD)
    with pytest.raises(UsageError, match="metric=nope is unknown. Use one of episodic_return, episodic_length, evaluation, or"):
        compare(tmp_path / "a", tmp_path / "a", "nope")


def test_numbers_that_differ_are_rounded_unless_they_would_look_equal(tmp_path):
    """A search draws numbers of sixteen digits."""
    for gamma, rate in ((0.9876543, 0.1), (0.9123456, 0.10000001)):
        write_runs(tmp_path / "a", OLD, gamma=gamma, more_config={"learning_rate": rate})
    cells = differing_settings(group_runs(read_runs(tmp_path / "a")))
    assert sorted(cells["gamma"].values()) == ["0.9123", "0.9877"]
    assert sorted(cells["learning_rate"].values()) == ["0.1", "0.10000001"]


def test_evaluations_are_compared(tmp_path, caplog):
    """Training scores are equal. The last evaluation during training counts, and one after training before it."""
    for name, better in (("a", 0), ("b", 2)):
        write_runs(tmp_path / name, OLD)
        for seed, score in enumerate(OLD, 1):
            table = f"iteration,global_step,eval/return_mean\n1,32,0\n2,64,{score + better}\n3,96,\n"
            (tmp_path / name / f"CartPole-v1__0.99__{seed}" / "metrics.csv").write_text(table)
    (one,), _ = compare_sides(tmp_path / "a", tmp_path / "b", "evaluation")
    assert one.pairs == 6 and one.difference.value == pytest.approx(2)
    assert "eval.json" not in caplog.text
    for seed in range(1, 7):
        (tmp_path / "b" / f"CartPole-v1__0.99__{seed}" / "eval.json").write_text('{"episodes": 9, "episodic_return_mean": 1.0}')
    assert compare_sides(tmp_path / "a", tmp_path / "b", "evaluation")[0][0].new.value == 1
    assert "some runs were evaluated after training (eval.json), of others the last evaluation during" in caplog.text
    for seed in range(1, 7):
        (tmp_path / "a" / f"CartPole-v1__0.99__{seed}" / "metrics.csv").unlink()
    with pytest.raises(UsageError, match="two common seeds that have an evaluation. Train the same seeds on both sides, with --eval-every N"):
        compare(tmp_path / "a", tmp_path / "b", "evaluation")
    assert "0 common evaluated seeds" in caplog.text


def test_what_cannot_be_compared_is_one_sentence(tmp_path, capsys):
    """No folder, no runs, nothing in common, or a single seed."""
    with pytest.raises(UsageError, match="is not a folder"):
        compare(tmp_path / "none", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="contains no runs"):
        compare(tmp_path / "empty", tmp_path / "empty")
    write_runs(tmp_path / "a", OLD)
    write_runs(tmp_path / "b", OLD, "Acrobot-v1")
    with pytest.raises(UsageError, match="two common seeds"):
        compare(tmp_path / "a", tmp_path / "b")
    write_runs(tmp_path / "three", OLD[:3])
    compare(tmp_path / "a", tmp_path / "three")
    assert "CartPole-v1 (ppo): only 3 seeds with a score on both sides are compared. The old side has 6 runs, the new side 3." in capsys.readouterr().err
    write_runs(tmp_path / "one", OLD[:1])
    with pytest.raises(UsageError, match="two common seeds"):
        compare(tmp_path / "a", tmp_path / "one")
    assert "CartPole-v1 (ppo): 1 common seed with a score. A comparison needs at least two." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["summary.json", "eval.json"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_score_that_is_not_finite_is_no_score(number, name, tmp_path, caplog):
    """With one of them, the p value would be NaN, which is not below 5 %, and the interquartile mean one of a best run."""
    write_runs(tmp_path / "a", OLD)
    write_runs(tmp_path / "b", OLD - 9)
    damaged = tmp_path / "b" / "CartPole-v1__0.99__1" / name
    damaged.write_text(f'{{"steps": 1000, "episodes": 1, "episodic_return_mean": {number}}}')
    text, worse = compare(tmp_path / "a", tmp_path / "b")
    assert worse and compare_sides(tmp_path / "a", tmp_path / "b", "")[0][0].pairs == (5 if name == "summary.json" else 6)
    assert f"{damaged}: episodic_return_mean=" in caplog.text and "The file is ignored" in caplog.text
    (runs,) = group_runs(read_runs(tmp_path / "b")).values()
    assert np.isfinite([*scores_of(runs), *evaluations_of(runs)]).all() and len(runs) == (5 if name == "summary.json" else 6)
