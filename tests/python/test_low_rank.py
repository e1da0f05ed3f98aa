# SPDX-License-Identifier: Apache-2.0
"""Products with thin factors beside NumPy's in float64, and what low_rank keeps between steps."""

import numpy as np
import pytest
import torch
from braid import _core
from braid.compression.low_rank import Factors, Sent

pytestmark = pytest.mark.unit

SHAPES = [(1, 50, 1), (50, 1, 1), (1, 1, 2), (13, 21, 16), (64, 64, 4), (257, 1031, 3), (130, 2100, 64)]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * max(float(np.abs(expected).max()), 1e-30))


@pytest.mark.parametrize(("rows", "columns", "rank"), SHAPES)
def test_a_step_is_what_float64_says(rows: int, columns: int, rank: int) -> None:
    product = _core.LowRank(rows, columns, rank)
    gradient, error = numbers(rows, columns), numbers(rows, columns, seed=1)
    sent, q = numbers(rank, rows, seed=2), numbers(rank, columns, seed=3)
    p, matrix = np.empty_like(sent), error.copy()
    product.project(gradient, matrix, sent, q, p, 0, rows)
    near(matrix, gradient + (error - sent.T.astype(np.float64) @ q))
    near(p, q.astype(np.float64) @ matrix.T)

    assert product.orthonormalize(p)
    kept = min(rank, rows)
    near(p.astype(np.float64) @ p.T, np.diag([1.0] * kept + [0.0] * (rank - kept)))
    product.gather(matrix, p, q, 0, columns)
    near(q, p.astype(np.float64) @ matrix)
    product.rebuild(p, q, gradient, 0, rows)
    near(gradient, p.T.astype(np.float64) @ q)
    if rank >= min(rows, columns) and rank >= rows:
        near(gradient, matrix)  # nothing is left out
    left = matrix.copy()
    product.settle(p, q, left, 0, rows)
    assert np.array_equal(left, matrix - gradient)
    assert np.linalg.norm(left) <= np.linalg.norm(matrix) * (1 + 1e-6)


def test_finds_the_components_of_a_matrix_that_has_few() -> None:
    true = numbers(90, 3) @ numbers(3, 70, seed=1)
    product, matrix = _core.LowRank(90, 70, 3), np.zeros((90, 70), np.float32)
    q, p, gradient = np.empty((3, 70), np.float32), np.empty((3, 90), np.float32), true.copy()
    _core.draw_uniform(7, q)
    product.project(gradient, matrix, None, q, p, 0, 90)
    assert product.orthonormalize(p)
    product.gather(matrix, p, q, 0, 70)
    product.rebuild(p, q, gradient, 0, 90)
    np.testing.assert_allclose(gradient, true, atol=1e-4)


def test_zeros_leave_a_direction_to_go_on_with() -> None:
    product, zeros = _core.LowRank(20, 30, 2), np.zeros((20, 30), np.float32)
    q, p, matrix = np.zeros((2, 30), np.float32), np.empty((2, 20), np.float32), zeros.copy()
    product.project(zeros, matrix, None, q, p, 0, 20)
    assert not p.any()
    assert product.orthonormalize(p)
    near(p @ p.T, np.eye(2))
    product.gather(matrix, p, q, 0, 30)
    assert not q.any()


def test_wrong_arguments_are_refused() -> None:
    for rank in (0, 65):
        with pytest.raises(ValueError, match=f"rank is {rank}, expected 1 to 64"):
            _core.LowRank(5, 6, rank)
    product, p, q, matrix = _core.LowRank(5, 6, 2), numbers(2, 5), numbers(2, 6), numbers(5, 6)
    with pytest.raises(ValueError, match="has 12 elements, expected 10"):
        product.rebuild(q, q, matrix, 0, 5)
    for begin, end in ((3, 2), (0, 6)):
        with pytest.raises(ValueError, match=f"{begin} to {end} is no range of 5"):
            product.rebuild(p, q, matrix, begin, end)
    with pytest.raises(ValueError, match="C-contiguous"):
        product.rebuild(p, q, numbers(6, 5).T, 0, 5)
    matrix.flags.writeable = False
    with pytest.raises(ValueError, match="may be written"):
        product.settle(p, q, matrix, 0, 5)
    with pytest.raises(ValueError, match="float32"):
        product.orthonormalize(np.zeros(10))


def test_what_was_sent_is_subtracted_once() -> None:
    factors, matrix = Factors(), torch.from_numpy(numbers(40))
    first, sent = factors.begin("w", (5, 8), 1, matrix)
    assert sent is None
    again, _ = Factors().begin("w", (5, 8), 1, matrix)
    assert torch.equal(first, again)
    assert not torch.equal(first, Factors().begin("v", (5, 8), 1, matrix)[0])

    factors.q["w"], factors.sent["w"] = torch.ones(1, 8), Sent(torch.ones(1, 5))
    copies = {"w": matrix.clone()}
    factors.settle(copies)
    assert torch.equal(copies["w"], matrix - 1)
    q, sent = factors.begin("w", (5, 8), 1, matrix)
    assert q is factors.q["w"]
    assert torch.equal(sent, torch.ones(1, 5))
    assert factors.begin("w", (5, 8), 1, matrix)[1] is None
    # With another rank there is no Q to subtract it with on the way.
    factors.sent["w"] = Sent(torch.ones(1, 5))
    q, sent = factors.begin("w", (5, 8), 2, matrix)
    assert q.shape == (2, 8)
    assert sent is None
    assert torch.equal(matrix, copies["w"])
