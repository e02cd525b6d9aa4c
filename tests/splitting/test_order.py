"""Measured orders, for fields that depend on time and do not commute."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.config import InputError
from ctt.splitting import Scheme, measure_convergence, observed_order, single_word

GRIDS = (16, 32, 64, 128)
WORD = Scheme("word", 2, single_word((0, 0.5), (1, 1.0), (0, 0.5)), order=2)
U0 = np.array([1.0, 0.5])


def stretch(t, u):
    return jnp.stack([u[1] * (1 + t), jnp.sin(3 * t) * u[0]])


def bend(t, u):
    return jnp.stack([-jnp.sin(u[0]) * jnp.cos(2 * t), u[0] * u[1] - t])


def decay(t, u):
    return jnp.stack([-jnp.exp(-t) * u[1] ** 2, -u[0]])


FIELDS = (stretch, bend, decay)


def solve_unsplit(fields):
    """The state at time 1, by a solver of diffrax that shares nothing with ours."""
    with jax.enable_x64(True):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, u, args: sum(f(t, u) for f in fields)),
            diffrax.Tsit5(),
            t0=0.0,
            t1=1.0,
            dt0=1e-3,
            y0=jnp.asarray(U0),
            stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-12),
        )
        return np.asarray(solution.ys[-1])


@pytest.fixture(scope="module")
def references():
    """The state at time 1, by the number of operators."""
    return {num_operators: solve_unsplit(FIELDS[:num_operators]) for num_operators in (2, 3)}


def finest_order(references, scheme, substep, num_operators=2):
    return measure_convergence(
        FIELDS[:num_operators],
        jnp.asarray(U0),
        scheme=scheme,
        substep=substep,
        steps=GRIDS,
        reference=references[num_operators],
    ).pairwise[-1]


@pytest.mark.parametrize(
    ("scheme", "substep", "order"),
    [
        ("lie", "euler", 1),
        ("lie", "midpoint", 1),
        ("lie_reversed", "euler", 1),
        ("lie_reversed", "midpoint", 1),
        ("strang", "euler", 1),
        ("strang", "midpoint", 2),
        ("strang_reversed", "midpoint", 2),
        ("strang_staggered", "euler", 1),
        ("strang_staggered", "midpoint", 2),
        ("parallel", "heun", 2),
        ("parallel", "rk4", 4),
        ("swss", "midpoint", 2),
        ("yoshida4", "rk4", 4),
    ],
)
@pytest.mark.usefixtures("float64")
def test_a_scheme_has_the_smaller_of_its_own_and_its_substeps_order(references, scheme, substep, order):
    assert abs(finest_order(references, scheme, substep) - order) < 0.1


@pytest.mark.usefixtures("float64")
def test_the_triple_jump_raises_second_order_substeps_by_one(references):
    # Its third-order conditions hold for any method of order 2, its fourth-order ones for symmetric methods alone.
    assert abs(finest_order(references, "yoshida4", "midpoint") - 3) < 0.1


@pytest.mark.parametrize(("scheme", "order"), [("lie", 1), ("strang", 2), ("strang_staggered", 2), ("swss", 2)])
@pytest.mark.usefixtures("float64")
def test_three_operators_keep_the_order(references, scheme, order):
    assert abs(finest_order(references, scheme, "midpoint", 3) - order) < 0.1


@pytest.mark.usefixtures("float64")
def test_a_scheme_of_ones_own_has_the_order_of_its_words(references):
    assert abs(finest_order(references, WORD, "midpoint") - 2) < 0.1


@pytest.mark.usefixtures("float64")
def test_the_default_reference_is_the_unsplit_equation(references):
    options = {"scheme": "strang", "substep": "midpoint", "steps": (8, 16)}
    ours = measure_convergence(FIELDS[:2], jnp.asarray(U0), **options)
    given = measure_convergence(FIELDS[:2], jnp.asarray(U0), reference=references[2], **options)
    np.testing.assert_allclose(ours.errors, given.errors, rtol=1e-6)


@pytest.mark.usefixtures("float64")
def test_a_constrained_problem_is_measured_against_its_own_finest_grid():
    class Circle:
        def project(self, t, u):
            return u / jnp.linalg.norm(u)

    slope = observed_order((stretch, Circle()), jnp.asarray(U0), scheme="lie", substep="euler", steps=(16, 32))
    assert abs(slope - 1) < 0.2


@pytest.mark.usefixtures("float64")
def test_the_order_of_a_pytree_state_is_measured():
    def first(t, u):
        return {"x": u["y"], "y": jnp.zeros_like(u["y"])}

    def second(t, u):
        return {"x": jnp.zeros_like(u["x"]), "y": -jnp.sin(u["x"])}

    u0 = {"x": jnp.array(1.0), "y": jnp.array(0.0)}
    assert abs(observed_order((first, second), u0, steps=(16, 32)) - 2) < 0.1


@pytest.mark.parametrize("steps", [(8,), (8, 8), ()])
def test_fewer_than_two_grids_are_refused(steps):
    with pytest.raises(InputError, match="at least two different numbers"):
        observed_order(FIELDS[:2], jnp.asarray(U0), steps=steps)


def test_a_problem_that_is_solved_exactly_has_no_order():
    with pytest.raises(InputError, match="have no logarithm: the scheme is exact"):
        observed_order((lambda t, u: jnp.ones_like(u),), jnp.zeros(2), reference=jnp.ones(2), steps=(2, 4))


def test_no_step_is_refused():
    with pytest.raises(InputError, match=r"`steps` must be >= 1, got \(0, 8\)"):
        observed_order(FIELDS[:2], jnp.asarray(U0), steps=(0, 8))


def test_a_number_that_is_none_is_seen_in_every_leaf():
    from ctt.splitting.order import distance

    assert np.isnan(distance({"a": jnp.ones(2), "b": jnp.array([jnp.nan])}, {"a": jnp.zeros(2), "b": jnp.zeros(1)}))
