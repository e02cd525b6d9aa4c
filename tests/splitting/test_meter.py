"""The local splitting error of a step and what it is made of, on fields whose commutators are known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.splitting import build_substeps, split_step
from ctt.splitting.meter import commutator, lipschitz, measure_step
from ctt.splitting.scheme import build_scheme

pytestmark = pytest.mark.usefixtures("float64")

SIZE = 5
GENERATOR = np.random.default_rng(0)
MATRICES = [0.5 * GENERATOR.standard_normal((SIZE, SIZE)) for _ in range(3)]
U = GENERATOR.standard_normal(SIZE)


class Linear:
    """The field ``A u``."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix)

    def vector_field(self, t, u):
        return self.matrix @ u


class Bend:
    """A field that is neither linear nor autonomous."""

    def __init__(self, shift):
        self.shift = shift

    def vector_field(self, t, u):
        return jnp.sin(2 * jnp.roll(u, self.shift)) * (1 + t) - 0.3 * u**2


class Halve:
    """A projection, for all a splitting knows."""

    def project(self, t, u):
        return u / 2


LINEAR = [Linear(matrix) for matrix in MATRICES]
FIELDS = {
    "two linear fields": LINEAR[:2],
    "three linear fields": LINEAR,
    "two curved fields": [Bend(1), Bend(2)],
    "three curved fields": [Bend(1), Bend(2), Bend(3)],
}


def size(u):
    return float(np.sqrt(np.mean(np.square(u))))


def measure(operators, dt, *, substep="rk4", u=U, t=0.2, **options):
    names = [f"f{i}" for i in range(len(operators))]
    methods = build_substeps(substep, len(operators))
    received = measure_step(methods, operators=operators, names=names, u=jnp.asarray(u), t=t, dt=dt, **options)
    return {name: float(value) for name, value in received.items()}


def test_the_commutator_of_linear_fields_is_that_of_their_matrices(relative_difference, tolerances):
    (a, b), u = MATRICES[:2], jnp.asarray(U)
    received = commutator(lambda u: LINEAR[0].vector_field(0.0, u), lambda u: LINEAR[1].vector_field(0.0, u), u)
    assert relative_difference(received, (b @ a - a @ b) @ U) < tolerances["float64"]


def test_a_commutator_changes_sign_with_its_fields(relative_difference, tolerances):
    f, g = (lambda u, part=part: part.vector_field(0.3, u) for part in FIELDS["two curved fields"])
    u = jnp.asarray(U)
    assert relative_difference(commutator(f, g, u), -commutator(g, f, u)) < tolerances["float64"]
    assert float(jnp.max(jnp.abs(commutator(f, f, u)))) == 0


@pytest.mark.parametrize("operators", FIELDS.values(), ids=FIELDS)
def test_lie_against_strang_tends_to_half_the_commutator(operators):
    h = 1e-3
    measures = measure(operators, h)
    assert measures["lie_strang"] == pytest.approx(h**2 / 2 * measures["commutator"], rel=0.02)


@pytest.mark.parametrize("operators", FIELDS.values(), ids=FIELDS)
def test_the_error_of_the_meter_itself_is_of_third_order(operators):
    errors = []
    for h in (2e-2, 1e-2):
        measures = measure(operators, h)
        errors.append(abs(measures["lie_strang"] / h**2 - measures["commutator"] / 2))
    assert errors[1] < 0.65 * errors[0]


def test_the_commutator_of_several_fields_is_the_sum_over_pairs():
    total = sum(b @ a - a @ b for a, b in itertools.combinations(MATRICES, 2)) @ U
    assert measure(LINEAR, 0.1)["commutator"] == pytest.approx(size(total), rel=1e-12)


def test_fields_are_evaluated_at_the_start_of_the_step_or_in_its_middle():
    f, g = FIELDS["two curved fields"]

    def at(t):
        return size(commutator(lambda u: f.vector_field(t, u), lambda u: g.vector_field(t, u), jnp.asarray(U)))

    assert measure([f, g], 0.4)["commutator"] == pytest.approx(at(0.2), rel=1e-12)
    for sampling in ("midpoint", "step"):
        assert measure([f, g], 0.4, sampling=sampling)["commutator"] == pytest.approx(at(0.4), rel=1e-12)


@pytest.mark.parametrize("substep", ["euler", "midpoint", "rk4"])
def test_the_free_estimate_is_of_second_order(substep):
    coarse, fine = (measure(FIELDS["two curved fields"], h, substep=substep)["free_estimate"] for h in (2e-3, 1e-3))
    assert coarse > 0
    assert np.log2(coarse / fine) == pytest.approx(2, abs=0.05)


def test_the_free_estimate_is_the_last_increment_of_strang_against_the_first(relative_difference):
    f, g = LINEAR[:2]
    h = 0.3
    u1 = U + h / 2 * f.vector_field(0.0, U)
    u2 = u1 + h * g.vector_field(0.0, u1)
    u3 = u2 + h / 2 * f.vector_field(0.0, u2)
    expected = size(u3 - (u2 + (u1 - U)))
    assert measure([f, g], h, substep="euler")["free_estimate"] == pytest.approx(expected, rel=1e-12)


def test_lie_against_strang_is_what_the_two_steps_say():
    operators, methods = FIELDS["two curved fields"], build_substeps("midpoint", 2)
    lie, strang = (
        split_step(build_scheme(name, 2), methods, operators=operators, u=jnp.asarray(U), t=0.2, dt=0.3)
        for name in ("lie", "strang")
    )
    measures = measure(operators, 0.3, substep="midpoint")
    assert measures["lie_strang"] == pytest.approx(size(lie - strang), rel=1e-12)
    assert measures["increment"] == pytest.approx(size(strang - U) / size(U), rel=1e-12)


def test_operators_that_commute_have_no_splitting_error():
    matrix = MATRICES[0]
    operators = [Linear(0.3 * matrix), Linear(0.7 * matrix)]
    measures = measure(operators, 0.05)
    assert measures["commutator"] < 1e-14
    # What is left is the error of the substeps, O(h^5).
    assert measures["lie_strang"] < 1e-7
    assert measure(LINEAR[:2], 0.05)["lie_strang"] > 1e-4


@pytest.mark.parametrize(
    "singular_values", [(3.0, 1.0, 0.5, 0.2, 0.0), (2.0, 1.5, 1.0, 0.5, 0.1), (1.0, 1.0, 1.0, 1.0, 1.0)]
)
def test_the_lipschitz_constant_of_a_linear_field_is_its_largest_singular_value(singular_values):
    left, right = (np.linalg.qr(GENERATOR.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    operator = Linear(left @ np.diag(singular_values) @ right)
    received = measure([operator, LINEAR[1]], 0.1)["lipschitz_f0"]
    assert received == pytest.approx(singular_values[0], rel=1e-3)
    assert received <= singular_values[0] * (1 + 1e-12)


def test_the_lipschitz_constant_is_that_of_the_derivative_at_the_state():
    operator = Bend(1)
    jacobian = np.asarray(jax.jacobian(lambda u: operator.vector_field(0.2, u))(jnp.asarray(U)))
    exact = np.linalg.svd(jacobian, compute_uv=False)[0]
    assert 0.98 * exact < measure([operator, LINEAR[0]], 0.1)["lipschitz_f0"] <= exact * (1 + 1e-12)


def test_the_lipschitz_constant_of_a_batch_is_the_largest_of_its_examples():
    scales = jnp.array([[0.5], [4.0], [1.0]])
    received = lipschitz(lambda u: scales * u, jnp.ones((3, SIZE)))
    assert float(received) == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_a_field_that_is_constant_has_the_lipschitz_constant_zero(value):
    assert float(lipschitz(lambda u: jnp.full_like(u, value), jnp.asarray(U))) == 0


def test_every_field_has_a_lipschitz_constant_under_its_name():
    received = measure_step(
        build_substeps("euler", 3), operators=LINEAR, names=("a", "b", "c"), u=jnp.asarray(U), t=0.0, dt=0.1
    )
    assert list(received)[-3:] == ["lipschitz_a", "lipschitz_b", "lipschitz_c"]


def test_a_projection_has_no_field_and_counts_as_zero():
    with_it, without = measure([*LINEAR[:2], Halve()], 0.1), measure(LINEAR[:2], 0.1)
    assert "lipschitz_f2" not in with_it
    for name in ("commutator", "lipschitz_f0", "lipschitz_f1"):
        assert with_it[name] == pytest.approx(without[name], rel=1e-12)


def test_a_single_operator_has_no_splitting_error():
    measures = measure([Bend(1)], 0.1)
    assert {measures[name] for name in ("free_estimate", "lie_strang", "commutator")} == {0.0}
    assert measures["increment"] > 0


def test_a_state_may_be_a_pytree():
    class Rotate:
        def vector_field(self, t, u):
            return {"x": u["y"], "y": -u["x"]}

    class Decay:
        def vector_field(self, t, u):
            return {"x": -u["x"], "y": 0 * u["y"]}

    u, flat = {"x": jnp.array(1.0), "y": jnp.array(0.5)}, jnp.array([1.0, 0.5])
    names, methods = ("rotate", "decay"), build_substeps("rk4", 2)
    received = measure_step(methods, operators=[Rotate(), Decay()], names=names, u=u, t=0.0, dt=0.1)
    matrices = [Linear([[0.0, 1.0], [-1.0, 0.0]]), Linear([[-1.0, 0.0], [0.0, 0.0]])]
    expected = measure_step(methods, operators=matrices, names=names, u=flat, t=0.0, dt=0.1)
    for name, value in expected.items():
        assert float(received[name]) == pytest.approx(float(value), rel=1e-3 if "lipschitz" in name else 1e-12)


def test_sizes_of_a_bfloat16_state_are_summed_in_float32():
    u = jnp.full((1000,), 1.0, jnp.bfloat16)

    class Shift:
        def vector_field(self, t, u):
            return jnp.ones_like(u)

    received = measure_step(build_substeps("euler", 1), operators=[Shift()], names=("shift",), u=u, t=0.0, dt=1.0)
    assert received["increment"].dtype == jnp.float32
    assert float(received["increment"]) == 1.0
