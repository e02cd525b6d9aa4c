"""What a scheme asks of its operators, and the way out of each refusal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.dynamics import Normalization, PostNormalized, PreNormalized
from ctt.dynamics.heat import HeatDiffusion
from ctt.dynamics.placement import TangentNormalized
from ctt.dynamics.skew import SkewMixing
from ctt.splitting import (
    SCHEMES,
    Scheme,
    build_scheme,
    build_solver,
    build_substeps,
    check_operators,
    integrate,
    measure_convergence,
    observed_order,
    single_word,
    split_step,
)
from ctt.splitting.order import distance, solve_unsplit

pytestmark = pytest.mark.usefixtures("float64")

FORWARD = [name for name in SCHEMES if name != "yoshida4"]
OVERSHOOT = Scheme("overshoot", 2, single_word((0, 1.5), (1, 1.0), (0, -0.5)))
U0 = np.array([[0.6, -1.5, 1.0, -0.1], [1.2, 0.4, -1.6, 0.0]])


class Twist:
    def vector_field(self, t, u):
        return jnp.sin(2 * u[:, ::-1]) * jnp.cos(t)


class Pull(Twist):
    def vector_field(self, t, u):
        return u[::-1] - 0.3 * u**2


class Irreversible(Pull):
    is_reversible = False


class Sphere:
    def project(self, t, u):
        return u / jnp.linalg.norm(u, axis=-1, keepdims=True)


def normalization():
    return Normalization(4, affine="none", eps=0.0, param_dtype=jnp.float64, rngs=nnx.Rngs(0))


def place(placement):
    return [placement(part, normalization()) for part in (Twist(), Pull())]


def heat():
    return HeatDiffusion(4, (1, 2), dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0))


def check(scheme, operators, **options):
    num_operators = len(operators)
    check_operators(
        build_scheme(scheme, num_operators), build_substeps("midpoint", num_operators), operators, **options
    )


PROJECTING = {
    "a projection": (Twist(), Pull(), Sphere()),
    "a normalisation": (Twist(), normalization()),
    "placement post": place(PostNormalized),
    "one operator placed post": (Twist(), PostNormalized(Pull(), Sphere())),
}
projecting = pytest.mark.parametrize("operators", PROJECTING.values(), ids=PROJECTING)


@projecting
def test_negative_fractions_with_a_projection_are_refused_with_the_reason_and_the_way_out(operators):
    match = (
        r"`yoshida4` flows backwards over a part of its step, and operator \d ends in a projection that has no inverse "
        r"and caps the order at 1\. Choose the placement pre or tangent, or .* such as strang, or set allow_reduced_ord"
    )
    with pytest.raises(InputError, match=match):
        check("yoshida4", operators)


@projecting
def test_negative_fractions_with_a_projection_are_allowed_where_a_reduced_order_is(operators):
    check("yoshida4", operators, allow_reduced_order=True)


@projecting
@pytest.mark.parametrize("scheme", FORWARD)
def test_a_projection_goes_together_with_every_scheme_without_negative_fractions(operators, scheme):
    check(scheme, operators)


@pytest.mark.parametrize("placement", [PreNormalized, TangentNormalized])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_smooth_placements_go_together_with_every_scheme(placement, scheme):
    check(scheme, place(placement))


def test_a_constraint_whose_field_is_tangent_may_flow_backwards():
    class Tangent(PostNormalized):
        is_tangent = True

    check("yoshida4", [Tangent(Twist(), Sphere()), Pull()])


@pytest.mark.parametrize("allow_reduced_order", [False, True])
@pytest.mark.parametrize(
    "placed",
    [
        lambda part: part,
        lambda part: PreNormalized(part, Sphere()),
        lambda part: PostNormalized(part, Sphere()),
        lambda part: TangentNormalized(part, normalization()),
    ],
    ids=["alone", "pre", "post", "tangent"],
)
def test_an_operator_that_cannot_flow_backwards_is_refused_whatever_its_placement(placed, allow_reduced_order):
    match = r"`yoshida4` flows backwards over .*operator 1 cannot: .*ill posed\. Choose .* such as strang"
    with pytest.raises(InputError, match=match):
        check("yoshida4", (Twist(), placed(Irreversible())), allow_reduced_order=allow_reduced_order)


def test_heat_cannot_flow_backwards_and_rotation_can():
    with pytest.raises(InputError, match="ill posed"):
        check("yoshida4", (heat(), Twist()))
    rotation = SkewMixing(4, dtype=jnp.float64, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    check("yoshida4", (rotation, Twist()))


@pytest.mark.parametrize("scheme", FORWARD)
def test_an_operator_that_cannot_flow_backwards_goes_together_with_fractions_above_zero(scheme):
    check(scheme, (Twist(), Irreversible()))


@pytest.mark.parametrize("order", [(Irreversible(), Pull()), (Pull(), Irreversible())])
def test_only_the_operator_that_flows_backwards_is_looked_at(order):
    if isinstance(order[0], Irreversible):
        with pytest.raises(InputError, match="operator 0 cannot"):
            check(OVERSHOOT, order)
    else:
        check(OVERSHOOT, order)


def test_messages_call_the_operators_by_their_names():
    with pytest.raises(InputError, match=r"and sphere ends in a projection"):
        check("yoshida4", (Twist(), Sphere()), names=("twist", "sphere"))
    methods = build_substeps(("exact", "euler"), 2)
    with pytest.raises(InputError, match=r"`exact` needs .* own, twist has none"):
        check_operators(build_scheme("lie", 2), methods, (Twist(), Pull()), names=("twist", "pull"))


@pytest.mark.parametrize(
    "start", [integrate, observed_order, measure_convergence, lambda f, u, **o: build_solver(f, **o)]
)
def test_every_entry_point_checks_the_operators(start):
    with pytest.raises(InputError, match="caps the order at 1"):
        start((Twist(), Sphere()), jnp.asarray(U0), scheme="yoshida4")
    with pytest.raises(InputError, match="ill posed"):
        start((Twist(), Irreversible()), jnp.asarray(U0), scheme="yoshida4", allow_reduced_order=True)


class Compiled:
    """Field and retraction compiled by themselves: a compiler takes long over a step of 36 tangent fields."""

    def __init__(self, operator):
        self.vector_field, self.retract = jax.jit(operator.vector_field), jax.jit(operator.retract)


@pytest.fixture(scope="module")
def reference():
    """The end of the projected dynamics, to which both placements tend."""
    with jax.enable_x64(True):
        return solve_unsplit(place(TangentNormalized), normalization().project(0.0, jnp.asarray(U0)), 0.5)


@pytest.mark.parametrize(
    ("placement", "grids", "order"),
    [(PostNormalized, (32, 64, 128, 256), 1), (TangentNormalized, (4, 8, 16, 32), 4)],
    ids=["post", "tangent"],
)
def test_a_projection_caps_the_triple_jump_at_order_one_unless_the_field_is_tangent(placement, grids, order, reference):
    operators, errors = [Compiled(part) for part in place(placement)], []
    scheme, substeps = build_scheme("yoshida4", 2), build_substeps("midpoint" if order == 1 else "rk4", 2)
    for steps in grids:
        u, dt = normalization().project(0.0, jnp.asarray(U0)), 0.5 / steps
        for n in range(steps):
            u = split_step(scheme, substeps, operators=operators, u=u, t=n * dt, dt=dt)
        errors.append(distance(u, reference))
    assert abs(np.log2(errors[-2] / errors[-1]) - order) < 0.1
