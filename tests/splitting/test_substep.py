"""Substeps: their orders, their cost, and the operator's own flow in place of an approximation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.config import InputError
from ctt.dynamics import PostNormalized
from ctt.splitting import (
    SCHEMES,
    SUBSTEPS,
    build_substep,
    build_substeps,
    integrate,
    measure_convergence,
    parse_scheme,
)

pytestmark = pytest.mark.usefixtures("float64")

APPROXIMATE = [name for name in SUBSTEPS if name != "exact"]
U0 = np.array([1.0, -0.5, 0.3])


class Rotation:
    """``u_t = M u`` with the skew matrix M of one of three planes, no two of which commute; and its flow."""

    def __init__(self, plane):
        i, j = [(0, 1), (1, 2), (2, 0)][plane]
        self.matrix = np.zeros((3, 3))
        self.matrix[i, j], self.matrix[j, i] = 1.0, -1.0

    def vector_field(self, t, u):
        return self.matrix @ u

    def flow(self, u, t0, t1):
        # M^3 = -M, so exp(h M) = 1 + sin(h) M + (1 - cos(h)) M^2.
        h, turned = t1 - t0, self.matrix @ u
        return u + jnp.sin(h) * turned + (1 - jnp.cos(h)) * (self.matrix @ turned)


class Decay:
    """``u_t = -cos(t) u``, whose flow depends on both its times."""

    def vector_field(self, t, u):
        return -jnp.cos(t) * u

    def flow(self, u, t0, t1):
        return u * jnp.exp(jnp.sin(t0) - jnp.sin(t1))


class Sphere:
    def project(self, t, u):
        return u / jnp.linalg.norm(u)


def bend(t, u):
    return jnp.stack([jnp.sin(3 * t) * u[1], -u[0] * u[2], u[1]])


@pytest.mark.parametrize(("substep", "order"), [("euler", 1), ("midpoint", 2), ("heun", 2), ("rk4", 4)])
def test_a_substep_has_its_order_where_the_field_is_nonlinear_and_depends_on_time(substep, order):
    # u_t = -cos(t) u^2 has the solution u0 / (1 + u0 sin t).
    measured = measure_convergence(
        (lambda t, u: -jnp.cos(t) * u**2,),
        jnp.array([1.5]),
        scheme="lie",
        substep=substep,
        steps=(16, 32, 64, 128),
        reference=1.5 / (1 + 1.5 * jnp.sin(jnp.array([1.0]))),
    )
    assert abs(measured.pairwise[-1] - order) < 0.1
    assert build_substep(substep).order == order


@pytest.mark.parametrize("substep", APPROXIMATE)
def test_a_substep_evaluates_its_field_as_often_as_it_says(substep):
    calls = []
    SUBSTEPS[substep].advance(lambda t, u: calls.append(t) or u, 0.0, 1.0, 0.1)
    assert len(calls) == SUBSTEPS[substep].evaluations


@pytest.mark.parametrize(
    ("substep", "stages"),
    [("euler", [0]), ("midpoint", [0, 0.5]), ("heun", [0, 1]), ("rk4", [0, 0.5, 0.5, 1])],
)
def test_a_substep_evaluates_its_field_at_the_nodes_of_its_tableau(substep, stages):
    times = []
    SUBSTEPS[substep].advance(lambda t, u: times.append(t) or u, 2.0, 1.0, 0.5)
    np.testing.assert_allclose(times, 2.0 + 0.5 * np.array(stages), rtol=1e-15)


@pytest.mark.parametrize("substep", APPROXIMATE)
def test_a_substep_keeps_the_structure_of_a_pytree(substep):
    u = {"x": jnp.ones(2), "y": (jnp.zeros(3),)}
    advanced = SUBSTEPS[substep].advance(lambda t, u: u, 0.0, u, 0.1)
    assert jax.tree.structure(advanced) == jax.tree.structure(u)


def test_only_the_exact_substep_is_the_operators_own_flow():
    assert [name for name in SUBSTEPS if SUBSTEPS[name].is_exact] == ["exact"]


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "parallel"])
def test_the_exact_substep_is_the_operators_own_flow_on_its_clock(scheme):
    # Flows of numbers commute, so every splitting of them is the solution.
    received = integrate((Decay(), Decay()), jnp.array([2.0]), scheme=scheme, substep="exact", steps=3, t0=0.4)
    np.testing.assert_allclose(received, 2.0 * np.exp(2 * (np.sin(0.4) - np.sin(1.4))), rtol=1e-14)


@pytest.fixture(scope="module")
def there_and_back(fast_compilation):
    """Return a function: how far from its start two steps forward and two back leave a state."""

    def measure(scheme, substep="exact", num_operators=2):
        def solve(u, horizon):
            operators = [Rotation(i) for i in range(num_operators)]
            return integrate(operators, u, scheme=scheme, substep=substep, steps=2, horizon=horizon)

        compiled = jax.jit(solve, compiler_options=fast_compilation)
        return float(jnp.max(jnp.abs(compiled(compiled(jnp.asarray(U0), 0.5), -0.5) - U0)))

    return measure


@pytest.mark.parametrize("num_operators", [2, 3])
@pytest.mark.parametrize("scheme", ["strang", "strang_reversed", "strang_staggered", "yoshida4"])
def test_a_symmetric_scheme_with_exact_flows_undoes_itself_to_round_off(there_and_back, scheme, num_operators):
    assert there_and_back(scheme, num_operators=num_operators) < 1e-14


@pytest.mark.parametrize("scheme", ["lie", "lie_reversed", "swss"])
def test_a_scheme_that_is_not_symmetric_does_not_undo_itself(there_and_back, scheme):
    assert there_and_back(scheme) > 1e-5


def test_a_symmetric_scheme_with_fields_that_are_approximated_does_not_undo_itself(there_and_back):
    assert there_and_back("strang", "midpoint") > 1e-4


def test_each_operator_may_have_a_substep_of_its_own(relative_difference):
    operators, options = (Rotation(0), bend), {"scheme": "strang", "steps": 4}
    received = integrate(operators, jnp.asarray(U0), substep=("exact", "rk4"), **options)
    u, h = jnp.asarray(U0), 0.25
    for n in range(4):
        u = operators[0].flow(u, 0.0, h / 2)
        u = SUBSTEPS["rk4"].advance(bend, n * h, u, h)
        u = operators[0].flow(u, 0.0, h / 2)
    assert relative_difference(received, u) < 1e-14
    assert relative_difference(received, integrate(operators, jnp.asarray(U0), substep="rk4", **options)) > 1e-8


def test_the_constraint_of_an_operator_follows_its_own_flow():
    operator = PostNormalized(Rotation(0), Sphere())
    received = integrate((operator,), jnp.asarray(U0), scheme="lie", substep="exact", steps=1)
    flowed = Rotation(0).flow(jnp.asarray(U0), 0.0, 1.0)
    np.testing.assert_allclose(received, flowed / np.linalg.norm(flowed), rtol=1e-14)


def test_a_projection_needs_no_flow_where_substeps_are_exact():
    received = integrate((Rotation(0), Sphere()), jnp.asarray(U0), scheme="lie", substep="exact", steps=2)
    np.testing.assert_allclose(jnp.linalg.norm(received), 1.0, rtol=1e-14)


@pytest.mark.parametrize("substep", [("rk4",), ("rk4", "rk4", "rk4"), ()])
def test_a_wrong_number_of_substeps_is_refused(substep):
    received = ", ".join(substep) or "none"
    with pytest.raises(InputError, match=rf"a name for each of the 2 operators, got {received}\. Give as many"):
        integrate((Rotation(0), bend), jnp.asarray(U0), substep=substep)


def test_an_unknown_name_among_several_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"got 'exakt': did you mean `exact`\?"):
        build_substeps(("rk4", "exakt"), 2)


def test_one_name_is_the_substep_of_every_operator():
    assert build_substeps("heun", 3) == (SUBSTEPS["heun"],) * 3


def test_operators_that_flow_together_must_have_one_substep():
    operators = Rotation(0), Rotation(1)
    match = r"In `parallel` operator 0 and operator 1 flow together, .*got midpoint, rk4\. Give them one"
    with pytest.raises(InputError, match=match):
        integrate(operators, jnp.asarray(U0), scheme="parallel", substep=("rk4", "midpoint"))


def test_operators_that_flow_apart_may_have_different_substeps():
    scheme = parse_scheme("{a+b}/2 c {a+b}/2", ("a", "b", "c"))
    received = integrate(
        [Rotation(i) for i in range(3)], jnp.asarray(U0), scheme=scheme, substep=("rk4", "rk4", "exact"), steps=2
    )
    assert bool(jnp.all(jnp.isfinite(received)))


def test_exact_flows_of_a_set_of_operators_are_refused():
    match = r"In `parallel` operator 0 and operator 1 flow together, and the flow of a sum is not known\. Choose"
    with pytest.raises(InputError, match=match):
        integrate((Rotation(0), Rotation(1)), jnp.asarray(U0), scheme="parallel", substep="exact")


@pytest.mark.parametrize("operator", [bend, PostNormalized(lambda t, u: u, Sphere())], ids=["function", "placed"])
def test_an_exact_substep_of_an_operator_without_a_flow_is_refused(operator):
    match = r"`exact` needs an operator with a flow of its own, operator 1 has none .*Choose .* midpoint or rk4"
    with pytest.raises(InputError, match=match):
        integrate((Rotation(0), operator), jnp.asarray(U0), substep="exact")
