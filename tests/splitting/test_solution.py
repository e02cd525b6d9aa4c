"""What diffrax makes of the solver's steps: dense output, states on a set, gradients."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ctt.config import InputError
from ctt.dynamics import Normalization, PostNormalized
from ctt.dynamics.placement import TangentNormalized
from ctt.splitting import build_solver, integrate
from ctt.splitting.integrate import as_operator

pytestmark = pytest.mark.usefixtures("float64")

MATRICES = np.random.default_rng(1).standard_normal((2, 4, 4))
TIMES = np.linspace(0.0, 1.0, 101)
TOKENS = np.random.default_rng(2).standard_normal((3, 4))


def mix(t, u):
    return jnp.sin(u @ MATRICES[0]) * jnp.cos(t)


def act(t, u):
    return jnp.tanh(u[::-1] @ MATRICES[1] + t)


class Sphere:
    def project(self, t, u):
        return u / jnp.linalg.norm(u, axis=-1, keepdims=True)


def constrain(placement):
    normalization = Normalization(4, affine="none", eps=0.0, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    return [placement(as_operator(f), normalization) for f in (mix, act)], normalization.project(0.0, TOKENS)


def moments(u):
    return float(jnp.max(jnp.abs(jnp.mean(u, axis=-1)))), float(jnp.max(jnp.abs(jnp.var(u, axis=-1) - 1)))


@pytest.fixture(scope="module")
def exact(fast_compilation):
    def solve(u0):
        field = diffrax.ODETerm(lambda t, u, args: mix(t, u) + act(t, u))
        save, controller = diffrax.SaveAt(ts=TIMES), diffrax.PIDController(rtol=1e-12, atol=1e-12)
        options = {"stepsize_controller": controller, "adjoint": diffrax.ForwardMode(), "max_steps": None}
        return diffrax.diffeqsolve(field, diffrax.Dopri5(), 0.0, 1.0, 0.01, u0, saveat=save, **options).ys

    with jax.enable_x64(True):
        return jax.jit(solve, compiler_options=fast_compilation)(jnp.asarray(TOKENS))


@pytest.mark.parametrize("sampling", ["stage", "midpoint"])
def test_dense_output_is_second_order_between_the_steps(sampling, exact, fast_compilation):
    terms, solver = build_solver((mix, act), sampling=sampling)

    def evaluate(dt):
        options = {"saveat": diffrax.SaveAt(dense=True), "max_steps": 128, "adjoint": diffrax.ForwardMode()}
        solution = diffrax.diffeqsolve(terms, solver, 0.0, 1.0, dt, jnp.asarray(TOKENS), **options)
        return jax.vmap(solution.evaluate)(jnp.asarray(TIMES))

    compiled = jax.jit(evaluate, compiler_options=fast_compilation)
    errors = [float(jnp.max(jnp.abs(compiled(1 / n) - exact))) for n in (16, 32, 64, 128)]
    assert np.log2(errors[-2] / errors[-1]) > 1.9
    assert errors[-1] < 1e-3


@pytest.mark.parametrize(
    ("build", "interpolation"),
    [
        (lambda: (mix, act), diffrax.ThirdOrderHermitePolynomialInterpolation),
        (lambda: constrain(TangentNormalized)[0], diffrax.ThirdOrderHermitePolynomialInterpolation),
        (lambda: constrain(PostNormalized)[0], diffrax.LocalLinearInterpolation),
        (lambda: (mix, Sphere()), diffrax.LocalLinearInterpolation),
    ],
    ids=["smooth", "tangent", "post", "projection"],
)
def test_dense_output_is_linear_where_the_fields_do_not_know_a_projection(build, interpolation):
    assert build_solver(build())[1].interpolation_cls is interpolation


def test_adaptive_steps_with_merged_ends_keep_a_tangent_state_on_its_set(fast_compilation):
    operators, u0 = constrain(TangentNormalized)
    terms, solver = build_solver(operators, scheme="strang_staggered")

    def solve(u0):
        controller, save = diffrax.PIDController(rtol=1e-3, atol=1e-3), diffrax.SaveAt(steps=True)
        options = {"stepsize_controller": controller, "adjoint": diffrax.ForwardMode(), "max_steps": 200}
        return diffrax.diffeqsolve(terms, solver, 0.0, 1.0, 0.5, u0, saveat=save, **options)

    solution = jax.jit(solve, compiler_options=fast_compilation)(u0)
    num_steps = int(solution.stats["num_accepted_steps"])
    assert num_steps > 5
    assert max(moments(solution.ys[:num_steps])) < 1e-14
    assert float(jnp.max(jnp.abs(solution.ys[num_steps - 1] - u0))) > 0.1


@pytest.mark.parametrize("placement", [PostNormalized, TangentNormalized])
def test_the_mean_of_two_words_is_brought_back_to_the_set(placement):
    operators, u0 = constrain(placement)

    def step(scheme):
        terms, solver = build_solver(operators, scheme=scheme)
        return solver.step(terms, 0.0, 0.4, u0, None, solver.init(terms, 0.0, 0.4, u0, None), False)[0]

    mean = (step("lie") + step("lie_reversed")) / 2
    assert max(moments(step("swss"))) < 1e-14
    assert max(moments(mean)) > 1e-6  # The set is not convex.


def test_the_state_may_be_a_pytree(relative_difference):
    def tree(f):
        return lambda t, u: dict(zip("ab", jnp.split(f(t, jnp.concatenate([u["a"], u["b"]])), [1]), strict=True))

    def take_step(operators, u0):
        terms, solver = build_solver(operators)
        return solver.step(terms, 0.1, 0.4, u0, None, solver.init(terms, 0.1, 0.4, u0, None), False)[:2]

    u0 = dict(zip("ab", jnp.split(jnp.asarray(TOKENS), [1]), strict=True))
    received, expected = take_step((tree(mix), tree(act)), u0), take_step((mix, act), jnp.asarray(TOKENS))
    for mine, whole in zip(received, expected, strict=True):
        assert relative_difference(jnp.concatenate([mine["a"], mine["b"]]), whole) < 1e-14


@pytest.mark.parametrize("num_terms", [1, 3])
def test_a_wrong_number_of_terms_is_refused(num_terms):
    _, solver = build_solver((mix, act))
    terms = diffrax.MultiTerm(*[diffrax.ODETerm(lambda t, u, args: u)] * num_terms)
    with pytest.raises(InputError, match=rf"`strang` splits 2 operators, got {num_terms} terms\. Give a MultiTerm"):
        diffrax.diffeqsolve(terms, solver, 0.0, 1.0, 0.1, jnp.asarray(TOKENS))


@pytest.mark.parametrize("options", [{"scheme": "strangs"}, {"substep": "rk5"}, {"sampling": "end"}])
def test_an_unknown_name_is_refused(options):
    with pytest.raises(InputError, match=r"must be a known name, got .*Known: "):
        build_solver((mix, act), **options)


class Turn(nnx.Module):
    """``u_t = rate(t) u J`` with a learnable rate, and its flow."""

    def __init__(self):
        self.rate = nnx.Param(jnp.array(0.7))

    def vector_field(self, t, u):
        return self.rate[...] * jnp.cos(t) * jnp.stack([-u[:, 1], u[:, 0], -u[:, 3], u[:, 2]], axis=1)

    def flow(self, u, t0, t1):
        angle = self.rate[...] * (jnp.sin(t1) - jnp.sin(t0))
        turned = jnp.stack([-u[:, 1], u[:, 0], -u[:, 3], u[:, 2]], axis=1)
        return jnp.cos(angle) * u + jnp.sin(angle) * turned


@pytest.mark.parametrize(("scheme", "substep"), [("strang_staggered", "midpoint"), ("lie", ("exact", "euler"))])
def test_the_gradient_through_diffrax_is_that_of_integrate(scheme, substep, relative_difference, fast_compilation):
    graphdef, state = nnx.split(Turn())
    options = {"scheme": scheme, "substep": substep}

    def by_diffrax(state, u0):
        terms, solver = build_solver((nnx.merge(graphdef, state), act), **options)
        controller = diffrax.StepTo(jnp.linspace(0.0, 1.0, 5))
        return diffrax.diffeqsolve(terms, solver, 0.0, 1.0, None, u0, stepsize_controller=controller, max_steps=4).ys[0]

    def by_integrate(state, u0):
        return integrate((nnx.merge(graphdef, state), act), u0, steps=4, **options)

    def gradient(solve):
        loss = jax.grad(lambda state, u0: jnp.sum(jnp.sin(solve(state, u0))), argnums=(0, 1))
        return jax.jit(loss, compiler_options=fast_compilation)(state, jnp.asarray(TOKENS))

    received, expected = gradient(by_diffrax), gradient(by_integrate)
    assert relative_difference(received[0], expected[0]) < 1e-10
    assert relative_difference(received[1], expected[1]) < 1e-10
