"""Run folders that no training wrote, line by line, for what reads them."""

import json
import math
from pathlib import Path

METRICS = ("iteration", "global_step", "seconds", "charts/episodic_return", "charts/SPS", "losses/approx_kl",
           "losses/clipfrac", "losses/entropy", "losses/explained_variance")


class RunFolder:
    """A run that grows when it is told to."""

    def __init__(self, folder, total=10_000, variant="ppo", **config):
        self.folder, self.step, self.iteration = Path(folder), 0, 0
        self.folder.mkdir(parents=True, exist_ok=True)
        config = {"env_id": "CartPole-v1", "seed": 1, "total_timesteps": total, **config}
        (self.folder / "config.json").write_text(json.dumps({"variant": variant, "config": config}))

    def grow(self, iterations, steps=100, **values):
        """Append iterations with one episode each, of return 2 * iteration; `values` replace metrics by their name."""
        for _ in range(iterations):
            self.iteration += 1
            self.step += steps
            row = dict(zip(METRICS, (self.iteration, self.step, self.step / 50, "", 500, 0.01, 0.1, 0.6, 0.5)))
            row |= {f"losses/{name}": value for name, value in values.items()}
            self._append("metrics.csv", METRICS, row.values())
            self._append("episodes.csv", ("step", "row", "return", "length", "seconds"),
                         (self.step, 0, 2 * self.iteration, 10 + self.iteration, self.step / 50))
        return self

    def finish(self):
        (self.folder / "summary.json").write_text(json.dumps({"steps": self.step, "sps": 500.0}))
        return self

    def lock(self, text="process 1 on elsewhere\n"):
        (self.folder / ".lock").write_text(text)
        return self

    def _append(self, name, head, cells):
        path = self.folder / name
        with path.open("a") as file:
            if not path.stat().st_size:
                file.write(",".join(head) + "\n")
            file.write(",".join("" if isinstance(cell, float) and math.isnan(cell) else str(cell) for cell in cells) + "\n")
