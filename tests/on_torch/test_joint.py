"""Actions of several parts against the distributions of the parts; tests/test_parity.py compares JAX with torch."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions, nn

from proximo.envs.arrays.joint_actions import action_parts, num_outputs
from proximo.envs.arrays.masks import mask_parts
from proximo.envs.arrays.spaces import action_writer, scripted_action
from proximo.errors import UsageError
from proximo.on_torch.assemble import make_head

SPACE = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3, start=1), "c": spaces.Tuple([
    spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4])])})
SIZES = [2, 3, 4, 6]


def make():
    """The head without a network, 50 rows of outputs, and a mask that forbids some choices."""
    head, rng = make_head(lambda n: nn.Identity(), SPACE), np.random.default_rng(0)
    assert [num_outputs(part) for part in action_parts(SPACE)] == SIZES and mask_parts(SPACE).tolist() == [3, 2, 4]
    outputs = torch.from_numpy(rng.normal(size=(50, sum(SIZES))))
    mask = torch.from_numpy(rng.random((50, 9)) < 0.6)
    mask[:, [0, 3, 5]] = True
    return head, outputs, mask


def parts_by_hand(outputs, mask):
    """The parts' distributions: a normal, and choices among allowed logits."""
    a, b, c, d = outputs.split(SIZES, -1)
    logits = [b, c[:, :2], c[:, 2:], d[:, :2], d[:, 2:]]
    allowed = [mask[:, :3], None, None, mask[:, 3:5], mask[:, 5:]]
    choices = [distributions.Categorical(logits=x if ok is None else x.masked_fill(~ok, -torch.inf))
               for x, ok in zip(logits, allowed)]
    return [distributions.Independent(distributions.Normal(a, torch.ones_like(a)), 1), *choices]


def test_log_probabilities_and_entropies_are_sums():
    head, outputs, mask = make()
    dist = head(outputs, mask)
    action = dist.sample(head.noise(torch.Generator().manual_seed(1), 50))
    assert action.shape == (50, 7) and action.dtype == torch.float32
    values = [action[:, :2].double(), *(action[:, i].long() for i in range(2, 7))]
    parts = parts_by_hand(outputs, mask)
    expected = sum(part.log_prob(value) for part, value in zip(parts, values))
    assert torch.isfinite(expected).all() and torch.allclose(dist.logprob(action), expected, atol=1e-6)
    entropy = parts[0].entropy() + sum(torch.special.entr(part.probs).sum(-1) for part in parts[1:])
    assert torch.allclose(dist.entropy(), entropy, atol=1e-6)
    mode = dist.mode()
    assert torch.allclose(mode[:, :2], outputs[:, :2].float())
    assert all(torch.equal(mode[:, 2 + i].long(), part.logits.argmax(-1)) for i, part in enumerate(parts[1:]))


def test_samples_follow_the_probabilities():
    """A part's frequencies in 20,000 samples, three standard errors."""
    head, outputs, _ = make()
    row, number = outputs[:1].expand(20_000, -1), 20_000
    action = head(row, None).sample(head.noise(torch.Generator().manual_seed(2), number))
    for column, logits in ((2, outputs[0, 2:5]), (6, outputs[0, 11:])):
        p = logits.softmax(-1)
        found = torch.bincount(action[:, column].long(), minlength=len(p)) / number
        assert ((found - p).abs() < 3.5 * (p * (1 - p) / number).sqrt()).all()


def test_the_environment_gets_the_structure():
    """Elements of the space: `start` added, clipped, in the dtypes; also of scripted actions, which follow the mask."""
    head, outputs, mask = make()
    write, rng = action_writer(SPACE, "x"), np.random.default_rng(0)
    for action in write(head(5 * outputs, mask).mode().numpy()):
        assert SPACE.contains(action) and abs(action["a"]).max() <= 1
    rows = np.stack([scripted_action(SPACE, one, rng) for one in mask.numpy()])
    for action, allowed in zip(write(rows), mask):
        assert SPACE.contains(action) and allowed[action["b"] - 1]
        assert allowed[3 + action["c"][1][0]] and allowed[5 + action["c"][1][1]]


def test_a_part_without_a_policy_is_refused():
    """Its name is said: the action space of a power grid has twenty parts, several of them of integers."""
    with pytest.raises(UsageError, match=r"x, action\['lines'\]\[1\], has the action space Box\(.*for which there is no policy"):
        action_writer(spaces.Dict({"lines": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.int32)])}), "x")


@pytest.mark.parametrize("space", [spaces.Dict(), spaces.Tuple([]), spaces.Dict({"a": spaces.Tuple([])})], ids=str)
def test_a_structure_without_parts_is_refused(space):
    """It ended training with a traceback."""
    with pytest.raises(UsageError, match=r"^x has the action space .*, for which there is no policy"):
        action_writer(space, "x")
