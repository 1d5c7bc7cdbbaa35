"""Ablations against hand calculations: the change that is named, and which side is worse."""

import json

import numpy as np
import pytest
from scipy import stats

from proximo.bench.report.ablations import find_ablations
from proximo.bench.report.pictures import BETTER, UNCLEAR, WORSE, ablation_picture
from proximo.bench.report.tables import ablation_table
from proximo.bench.results import group_runs, read_runs

pytest.importorskip("rliable")

BASE, CHANGED = np.array([10.0, 12.0, 11.0, 13.0]), np.array([7.0, 10.5, 8.0, 11.0])


def write(folder, label, scores, ablates="", **config):
    for seed, score in enumerate(scores, 1):
        run = folder / label / str(seed)
        run.mkdir(parents=True)
        content = {"env_id": "CartPole-v1", "seed": seed, "run_dir": str(run), "track": bool(ablates)} | config
        (run / "config.json").write_text(json.dumps({"variant": "ppo", "config": content}))
        (run / "summary.json").write_text(json.dumps({"steps": 1000, "episodic_return_mean": score}))
        run.with_name(f"{seed}.job.json").write_text(json.dumps({"label": label, "ablates": ablates}))


def test_a_change_that_makes_it_worse(tmp_path):
    """Two machines have chosen other threads, devices and workers, which is no change of the detail. The p value is that of
    scipy's paired test for a worse change."""
    write(tmp_path, "ppo", BASE, norm_adv="minibatch", threads=1, env_workers=0, device="cpu")
    write(tmp_path, "ppo-changed_norm_adv", CHANGED, "norm_adv", norm_adv="none", threads=8, env_workers=4, device="cuda")
    (found,) = find_ablations(group_runs(read_runs(tmp_path)))
    assert found.change == "norm_adv minibatch to none"
    assert found.p_worse == pytest.approx(stats.ttest_rel(CHANGED, BASE, alternative="less").pvalue) and found.p_worse < 0.05
    assert found.difference.value == pytest.approx((CHANGED - BASE).mean())


@pytest.mark.parametrize(("seeds", "colors"), [(4, [True, False, False]), (1, [False, False, True])])
def test_one_pair_shows_no_effect(seeds, colors, tmp_path):
    """It has no interval. The dot of four pairs, which all are worse, is red."""
    pytest.importorskip("matplotlib")
    write(tmp_path, "ppo", BASE[:seeds], norm_adv="minibatch")
    write(tmp_path, "ppo-changed_norm_adv", CHANGED[:seeds], "norm_adv", norm_adv="none")
    found = find_ablations(group_runs(read_runs(tmp_path)))
    picture, (row,) = ablation_picture(found), ablation_table(found).rows
    assert [color in picture for color in (WORSE, BETTER, UNCLEAR)] == colors
    assert (row[5], row[6]) == ("-3.00 (one seed)", "0.00 (one seed)") or seeds == 4
