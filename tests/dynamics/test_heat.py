"""Heat diffusion over the token mesh: the exact flow does what the continuous one does."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
from flax import nnx

from ctt.config.error import InputError
from ctt.dynamics.heat import HeatDiffusion, neumann_laplacian, neumann_modes
from ctt.dynamics.operator import Operator

WIDTH, GRID, PREFIX = 3, (4, 5), 2
TOKENS = PREFIX + GRID[0] * GRID[1]


def build(*, diffusivity=0.1, dtype=jnp.float64, grid=GRID, prefix=PREFIX):
    return HeatDiffusion(
        WIDTH,
        grid,
        num_prefix_tokens=prefix,
        diffusivity=diffusivity,
        dtype=dtype,
        param_dtype=jnp.promote_types(dtype, jnp.float32),
        rngs=nnx.Rngs(0),
    )


@pytest.fixture
def heat(float64, draw_weights):
    """A diffusion whose kappa differs from feature to feature, in float64."""
    return draw_weights(build, size=1.0)


def draw(shape=(2, TOKENS, WIDTH), dtype=jnp.float64):
    return jnp.asarray(1 + np.random.default_rng(1).standard_normal(shape), dtype)


def assemble(module):
    """The matrix of all tokens `[width, tokens, tokens]`, entry by entry: mean flux over the edges of the mesh."""
    rows, columns = GRID
    laplacian = np.zeros((TOKENS, TOKENS))
    for row in range(rows):
        for column in range(columns):
            for other in ((row + 1, column), (row, column + 1), (row - 1, column), (row, column - 1)):
                if 0 <= other[0] < rows and 0 <= other[1] < columns:
                    here, there = (PREFIX + r * columns + c for r, c in ((row, column), other))
                    laplacian[here, here] -= 1
                    laplacian[here, there] += 1
    return np.exp(np.asarray(module.log_diffusivity[...]))[:, None, None] * laplacian


def test_the_field_is_the_product_with_the_assembled_matrix(heat, relative_difference, tolerances):
    expected = np.einsum("wij,bjw->biw", assemble(heat), draw())
    assert relative_difference(heat.vector_field(0.0, draw()), expected) < tolerances["float64"]


@pytest.mark.parametrize("duration", [0.0, 0.3, 20.0])
def test_the_flow_is_the_exponential_of_the_assembled_matrix(heat, relative_difference, tolerances, duration):
    exponentials = jax.vmap(jax.scipy.linalg.expm)(jnp.asarray(duration * assemble(heat)))
    expected = jnp.einsum("wij,bjw->biw", exponentials, draw())
    assert relative_difference(heat.flow(draw(), 0.5, 0.5 + duration), expected) < tolerances["float64"]


@pytest.mark.parametrize("num_nodes", [1, 2, 5, 8])
def test_the_modes_diagonalise_the_laplacian(num_nodes):
    vectors, values = neumann_modes(num_nodes)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(num_nodes), atol=1e-14)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, neumann_laplacian(num_nodes), atol=1e-14)


def test_the_field_is_the_derivative_of_the_flow(heat, relative_difference, tolerances):
    _, derivative = jax.jvp(lambda t: heat.flow(draw(), 0.0, t), (0.0,), (1.0,))
    assert relative_difference(derivative, heat.vector_field(0.0, draw())) < tolerances["float64"]


def test_two_flows_in_a_row_are_one(heat, relative_difference, tolerances):
    twice = heat.flow(heat.flow(draw(), 0.0, 0.7), 0.7, 2.0)
    assert relative_difference(twice, heat.flow(draw(), 0.0, 2.0)) < tolerances["float64"]


@pytest.mark.parametrize("duration", [1e-3, 1.0, 1e3, 1e9])
def test_the_mean_of_a_feature_is_kept(heat, duration):
    moved = heat.flow(draw(), 0.0, duration)
    np.testing.assert_allclose(moved[:, PREFIX:].mean(1), draw()[:, PREFIX:].mean(1), rtol=1e-13)


@pytest.mark.parametrize("duration", [1e-3, 1.0, 1e3, 1e9])
def test_the_flow_obeys_the_maximum_principle(heat, duration):
    before, after = draw()[:, PREFIX:], heat.flow(draw(), 0.0, duration)[:, PREFIX:]
    assert bool(jnp.all(after.max(1) <= before.max(1) + 1e-14))
    assert bool(jnp.all(after.min(1) >= before.min(1) - 1e-14))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.usefixtures("float64")
def test_after_a_huge_step_every_token_is_the_mean(dtype, relative_difference, tolerances):
    u = draw(dtype=dtype)
    mesh = build(dtype=jnp.dtype(dtype)).flow(u, 0.0, 1e9)[:, PREFIX:]
    expected = np.broadcast_to(np.asarray(u, np.float64)[:, PREFIX:].mean(1, keepdims=True), mesh.shape)
    assert relative_difference(mesh, expected) < tolerances[dtype]


def test_the_tokens_before_the_mesh_do_not_move(heat):
    np.testing.assert_array_equal(heat.flow(draw(), 0.0, 3.0)[:, :PREFIX], draw()[:, :PREFIX])
    np.testing.assert_array_equal(heat.vector_field(0.0, draw())[:, :PREFIX], 0)


def test_the_tokens_before_the_mesh_move_nothing(heat):
    changed = draw().at[:, :PREFIX].add(5.0)
    np.testing.assert_array_equal(heat.flow(changed, 0.0, 3.0)[:, PREFIX:], heat.flow(draw(), 0.0, 3.0)[:, PREFIX:])


@pytest.mark.usefixtures("float64")
def test_a_mesh_needs_no_other_tokens(relative_difference, tolerances):
    u = draw()
    alone = build(prefix=0).flow(u[:, PREFIX:], 0.0, 1.0)
    assert relative_difference(alone, build().flow(u, 0.0, 1.0)[:, PREFIX:]) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_one_row_is_the_heat_equation_on_a_line(relative_difference, tolerances):
    u = draw((6, WIDTH))
    expected = jax.scipy.linalg.expm(0.1 * jnp.asarray(neumann_laplacian(6))) @ u
    assert relative_difference(build(grid=(1, 6), prefix=0).flow(u, 0.0, 1.0), expected) < tolerances["float64"]


@pytest.mark.usefixtures("float64")
def test_a_mode_decays_at_its_own_rate(relative_difference, tolerances):
    column = np.arange(5) + 0.5
    mode = np.broadcast_to(np.cos(2 * np.pi * column / 5), (4, 5)).reshape(20, 1) * np.ones(WIDTH)
    expected = np.exp(-0.1 * 4 * np.sin(np.pi * 2 / 10) ** 2 * 7) * mode
    received = build(prefix=0).flow(jnp.asarray(mode), 1.0, 8.0)
    assert relative_difference(received, expected) < tolerances["float64"]


def test_the_times_may_be_traced(heat, relative_difference, tolerances):
    flow = jax.jit(heat.flow)
    expected = heat.flow(draw(), 0.5, 1.5)
    assert relative_difference(flow(draw(), jnp.array(0.5), jnp.array(1.5)), expected) < tolerances["float64"]


def test_the_flow_has_a_gradient_in_the_diffusivity(heat):
    graphdef, state = nnx.split(heat)
    gradient = jax.grad(lambda s: jnp.sum(nnx.merge(graphdef, s).flow(draw(), 0.0, 1.0) ** 2))(state)
    # Diffusion lowers the sum of squares, and more of it lowers it more.
    assert bool(jnp.all(gradient["log_diffusivity"][...] < 0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_type_of_the_state_is_kept(dtype):
    module, u = build(dtype=jnp.dtype(dtype)), draw(dtype=dtype)
    assert module.flow(u, 0.0, 1.0).dtype == dtype
    assert module.vector_field(0.0, u).dtype == dtype


def test_the_initial_diffusivity_is_the_one_asked_for():
    np.testing.assert_allclose(jnp.exp(build(diffusivity=0.7, dtype=jnp.float32).log_diffusivity[...]), 0.7, rtol=1e-6)


def test_diffusion_is_an_operator_that_does_not_run_backwards():
    module = build(dtype=jnp.float32)
    assert isinstance(module, Operator)
    assert not module.is_reversible


def test_another_number_of_tokens_is_refused():
    with pytest.raises(InputError, match=f"takes {TOKENS} tokens, got {TOKENS - 1}"):
        build(dtype=jnp.float32).flow(draw((TOKENS - 1, WIDTH), jnp.float32), 0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"diffusivity": 0.0}, "`diffusivity` must be a finite number > 0, got 0.0"),
        ({"diffusivity": float("nan")}, "`diffusivity` must be a finite number > 0"),
        ({"grid": (0, 3)}, "at least one row and one column"),
        ({"prefix": -1}, "`num_prefix_tokens` must be >= 0"),
    ],
)
def test_what_is_no_diffusion_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        build(dtype=jnp.float32, **arguments)
