"""Position embeddings on another mesh: what cubic interpolation of patch centres must do."""

import numpy as np
import pytest

from ctt.interchange.positions import interpolate_positions


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("num_prefix", [0, 1, 2])
def test_the_same_mesh_changes_nothing(num_prefix):
    positions = draw(num_prefix + 12, 5)
    received = interpolate_positions(positions, (3, 4), (3, 4), num_prefix_tokens=num_prefix)
    np.testing.assert_allclose(received, positions, rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_prefix", [0, 1, 2])
def test_tokens_without_a_place_are_kept(num_prefix):
    positions = draw(num_prefix + 12, 5)
    received = interpolate_positions(positions, (3, 4), (6, 2), num_prefix_tokens=num_prefix)
    assert received.shape == (num_prefix + 12, 5)
    np.testing.assert_array_equal(received[:num_prefix], positions[:num_prefix])


@pytest.mark.parametrize("new_grid", [(6, 10), (2, 3), (12, 4)])
def test_rows_and_columns_are_told_apart(new_grid):
    """A function of the row alone stays one: its values are those of centres of patches."""
    rows = np.linspace(0, 1, 4)[:, None, None] * np.ones((4, 5, 1), np.float32)
    received = interpolate_positions(rows.reshape(20, 1), (4, 5), new_grid, num_prefix_tokens=0)
    mesh = np.asarray(received).reshape(new_grid)
    np.testing.assert_allclose(mesh, mesh[:, :1] * np.ones(new_grid), rtol=0, atol=1e-6)
    assert (np.diff(mesh[:, 0]) > 0).all()


def test_a_straight_line_stays_one_inside():
    """Keys' kernel is exact for lines; a patch half as large has its centre at a quarter of the old one."""
    line = np.arange(8, dtype=np.float32)
    positions = np.repeat(line[:, None], 2, axis=1).reshape(16, 1)  # The value is the row.
    mesh = np.asarray(interpolate_positions(positions, (8, 2), (16, 2), num_prefix_tokens=0)).reshape(16, 2)
    centres = (np.arange(16) + 0.5) / 2 - 0.5
    np.testing.assert_allclose(mesh[4:-4, 0], centres[4:-4], rtol=0, atol=1e-5)


def test_a_coarser_mesh_is_not_smoothed():
    """Half-way between two patches Keys' kernel has the weights -1, 9, 9, -1 sixteenths."""
    positions = draw(16, 3)
    received = np.asarray(interpolate_positions(positions, (16, 1), (8, 1), num_prefix_tokens=0))
    expected = np.stack([np.array([-1, 9, 9, -1]) / 16 @ positions[2 * n - 1 : 2 * n + 3] for n in range(1, 7)])
    np.testing.assert_allclose(received[1:-1], expected, rtol=0, atol=1e-5)
