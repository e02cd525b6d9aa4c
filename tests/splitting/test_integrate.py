import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.config import InputError
from ctt.splitting import Letter, Scheme, Word, integrate, single_word

pytestmark = pytest.mark.usefixtures("float64")

ROTATION = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
STAGGERED = Scheme("staggered", 2, single_word((0, 0.5), (1, 1.0), (0, 0.5)), order=2, merge_ends=True)
STRANG = Scheme("unmerged", 2, single_word((0, 0.5), (1, 1.0), (0, 0.5)), order=2)
PARALLEL = Scheme("parallel", 2, ((1.0, Word((Letter(frozenset({0, 1}), 1.0),))),), order=2)
LIE, REVERSED = single_word((0, 1.0), (1, 1.0))[0][1], single_word((1, 1.0), (0, 1.0))[0][1]
SWSS = Scheme("swss", 2, ((0.5, LIE), (0.5, REVERSED)), order=2)


def rotate(t, u):
    return ROTATION.astype(u.dtype) @ u * (1 + t)


def bend(t, u):
    return jnp.stack([-u[0] * u[1], jnp.cos(t) - u[1]])


U0 = np.array([1.0, 0.5])


def test_the_state_may_be_a_pytree(relative_difference, tolerances):
    def rotate_tree(t, u):
        return {"x": u["y"] * (1 + t), "y": -u["x"] * (1 + t)}

    def bend_tree(t, u):
        return {"x": -u["x"] * u["y"], "y": jnp.cos(t) - u["y"]}

    received = integrate((rotate_tree, bend_tree), {"x": jnp.array(1.0), "y": jnp.array(0.5)}, steps=8)
    expected = integrate((rotate, bend), jnp.asarray(U0), steps=8)
    assert relative_difference(jnp.stack([received["x"], received["y"]]), expected) < tolerances["float64"]


def test_an_operator_may_be_an_object_with_a_vector_field(relative_difference):
    class Rotation:
        def vector_field(self, t, u):
            return rotate(t, u)

    received = integrate((Rotation(), bend), jnp.asarray(U0), steps=4)
    assert relative_difference(received, integrate((rotate, bend), jnp.asarray(U0), steps=4)) == 0


@pytest.mark.parametrize("operator", [3.0, "rotate", None])
def test_what_is_no_operator_is_refused(operator):
    with pytest.raises(InputError, match=rf"`project`, got {type(operator).__name__}\. Wrap"):
        integrate((rotate, operator), jnp.asarray(U0))


@pytest.mark.parametrize("steps", [0, -3])
def test_no_step_is_refused(steps):
    with pytest.raises(InputError, match=rf"`steps` must be >= 1, got {steps}"):
        integrate((rotate, bend), jnp.asarray(U0), steps=steps)


def test_an_unknown_scheme_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean `strang`"):
        integrate((rotate, bend), jnp.asarray(U0), scheme="strangs")


def test_the_type_of_the_state_is_kept_in_float32():
    with jax.enable_x64(False):
        u1 = jax.jit(lambda u, horizon: integrate((rotate, bend), u, horizon=horizon))(
            jnp.asarray(U0, jnp.bfloat16), 1.0
        )
    assert u1.dtype == jnp.bfloat16


@pytest.mark.parametrize("scheme", ["strang", STAGGERED], ids=["strang", "staggered"])
def test_a_compiled_integration_equals_a_plain_one(scheme, relative_difference, tolerances):
    def solve(u, horizon, t0):
        return integrate((rotate, bend), u, scheme=scheme, steps=6, horizon=horizon, t0=t0)

    assert relative_difference(jax.jit(solve)(U0, 0.9, 0.2), solve(U0, 0.9, 0.2)) < tolerances["float64"]


def test_a_mapped_integration_equals_one_by_one(relative_difference, tolerances):
    batch = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2)))
    solve = jax.jit(lambda u: integrate((rotate, bend), u, steps=6))
    expected = jnp.stack([solve(u) for u in batch])
    assert relative_difference(jax.vmap(solve)(batch), expected) < tolerances["float64"]


def test_the_gradient_with_respect_to_the_initial_state_agrees_with_finite_differences():
    @jax.jit
    def value(u):
        return jnp.sum(integrate((rotate, bend), u, steps=6) ** 2)

    direction, h = np.array([0.6, -0.8]), 1e-6
    difference = (value(U0 + h * direction) - value(U0 - h * direction)) / (2 * h)
    np.testing.assert_allclose(jax.grad(value)(jnp.asarray(U0)) @ direction, difference, rtol=1e-8)


def test_the_gradient_with_respect_to_a_parameter_of_a_field_is_that_of_the_scheme():
    def solve(rate):
        return integrate((lambda t, u: -rate * u,), jnp.array(1.0), scheme="lie", substep="euler", steps=4)

    # (1 - rate / 4)^4 has the derivative -(1 - rate / 4)^3.
    np.testing.assert_allclose(jax.grad(solve)(0.5), -((1 - 0.5 / 4) ** 3), rtol=1e-13)


def test_the_gradient_with_respect_to_the_horizon_is_that_of_the_scheme():
    def solve(horizon):
        return integrate((lambda t, u: -u,), jnp.array(1.0), scheme="lie", substep="euler", steps=4, horizon=horizon)

    np.testing.assert_allclose(jax.grad(solve)(0.5), -((1 - 0.5 / 4) ** 3), rtol=1e-13)


def test_a_negative_horizon_integrates_backwards():
    back = integrate((lambda t, u: t * u,), jnp.array(1.0), steps=200, horizon=-1.0, t0=1.5)
    np.testing.assert_allclose(back, np.exp((0.5**2 - 1.5**2) / 2), rtol=1e-4)


@pytest.mark.parametrize("scheme", ["lie", "strang", STAGGERED], ids=["lie", "strang", "staggered"])
def test_there_and_back_again_returns_to_the_start(scheme):
    there = integrate((rotate, bend), jnp.asarray(U0), scheme=scheme, steps=400, horizon=0.5, t0=0.2)
    back = integrate((rotate, bend), there, scheme=scheme, steps=400, horizon=-0.5, t0=0.7)
    np.testing.assert_allclose(back, U0, rtol=5e-3)


class Circle:
    """The unit circle."""

    def project(self, t, u):
        return u / jnp.linalg.norm(u)


def test_a_state_ends_on_the_set_of_a_projection_that_acts_last():
    u1 = integrate((rotate, bend, Circle()), jnp.asarray(U0), scheme="lie", steps=5)
    np.testing.assert_allclose(jnp.linalg.norm(u1), 1.0, rtol=1e-14)


def test_a_projection_as_an_operator_tends_to_the_projected_dynamics():
    # On the circle u_t = P_u (1, 0) is angle_t = -sin(angle), so tan(angle / 2) decays like exp(-t).
    field, angle = (lambda t, u: jnp.array([1.0, 0.0])), 2.0
    u0 = jnp.array([np.cos(angle), np.sin(angle)])
    final = 2 * np.arctan(np.tan(angle / 2) * np.exp(-1.0))
    exact = np.array([np.cos(final), np.sin(final)])
    errors = [
        np.max(np.abs(integrate((field, Circle()), u0, scheme="lie", substep="euler", steps=n) - exact))
        for n in (200, 400)
    ]
    assert abs(np.log2(errors[0] / errors[1]) - 1) < 0.05


@pytest.mark.parametrize("substep", ["euler", "midpoint"])
def test_a_parallel_letter_flows_by_the_sum_of_its_fields(substep, relative_difference, tolerances):
    def both(t, u):
        return rotate(t, u) + bend(t, u)

    received = integrate((rotate, bend), jnp.asarray(U0), scheme=PARALLEL, substep=substep, steps=5)
    expected = integrate((both,), jnp.asarray(U0), scheme="lie", substep=substep, steps=5)
    assert relative_difference(received, expected) < tolerances["float64"]


def test_a_weighted_sum_of_words_is_the_mean_of_their_steps(relative_difference, tolerances):
    step = {"steps": 1, "horizon": 0.3}
    lie, reversed_ = (integrate((rotate, bend), jnp.asarray(U0), scheme=s, **step) for s in ("lie", "lie_reversed"))
    received = integrate((rotate, bend), jnp.asarray(U0), scheme=SWSS, **step)
    assert relative_difference(received, (lie + reversed_) / 2) < tolerances["float64"]


def test_merged_ends_change_nothing_in_a_single_step(relative_difference, tolerances):
    merged, plain = (integrate((rotate, bend), jnp.asarray(U0), scheme=s, steps=1) for s in (STAGGERED, STRANG))
    assert relative_difference(merged, plain) < tolerances["float64"]


@pytest.mark.parametrize("steps", [2, 3, 6])
def test_merged_ends_change_nothing_where_the_substep_is_exact(steps, relative_difference, tolerances):
    def shift(t, u):
        return jnp.array([0.7, -0.2])

    merged, plain = (integrate((shift, bend), jnp.asarray(U0), scheme=s, steps=steps) for s in (STAGGERED, STRANG))
    assert relative_difference(merged, plain) < tolerances["float64"]


def test_merged_and_unmerged_ends_differ_by_the_second_power_of_the_step():
    def difference(steps):
        ends = [
            integrate((rotate, bend), jnp.asarray(U0), scheme=s, substep="midpoint", steps=steps)
            for s in (STAGGERED, STRANG)
        ]
        return float(jnp.max(jnp.abs(ends[0] - ends[1])))

    assert abs(np.log2(difference(64) / difference(128)) - 2) < 0.1


def test_merged_ends_join_n_steps_to_n_plus_one_flows_of_the_outer_operator():
    calls = []

    def outer(t, u):
        jax.debug.callback(lambda: calls.append(0))
        return jnp.zeros_like(u)

    jax.block_until_ready(
        integrate((outer, lambda t, u: -u), jnp.asarray(U0), scheme=STAGGERED, substep="euler", steps=5)
    )
    jax.effects_barrier()
    assert len(calls) == 6


def test_a_state_of_integers_is_a_state_of_numbers(relative_difference):
    received = integrate((rotate, bend), jnp.array([1, 2]), steps=3)
    assert relative_difference(received, integrate((rotate, bend), jnp.array([1.0, 2.0]), steps=3)) == 0


def test_a_field_of_a_wider_type_does_not_widen_the_state():
    u1 = integrate((lambda t, u: u.astype(jnp.float64),), jnp.ones(2, jnp.bfloat16), steps=3)
    assert u1.dtype == jnp.bfloat16


def test_a_field_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"the shape of the state, \[2\], got \[1\]"):
        integrate((lambda t, u: u[:1],), jnp.ones(2), steps=3)


@pytest.mark.parametrize("steps", [2.5, "3", True, None])
def test_a_number_of_steps_that_is_no_integer_is_refused(steps):
    with pytest.raises(InputError, match=r"`steps` must be an integer .* Pass e\.g\. steps=32"):
        integrate((rotate, bend), jnp.asarray(U0), steps=steps)
