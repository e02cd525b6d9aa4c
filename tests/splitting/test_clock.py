"""Each operator has a clock of its own, advanced by its fractions of the step."""

import jax.numpy as jnp
import numpy as np
import pytest

from ctt.splitting import Letter, Scheme, Word, build_scheme, build_substeps, integrate, single_word, split_step

pytestmark = pytest.mark.usefixtures("float64")

T0, DT = 2.0, 0.4

STAGGERED = Scheme("staggered", 2, single_word((0, 0.5), (1, 1.0), (0, 0.5)), order=2, merge_ends=True)
PARALLEL = Scheme("parallel", 2, ((1.0, Word((Letter(frozenset({0, 1}), 1.0),))),), order=2)
THIRDS = Scheme("thirds", 2, single_word((0, 0.25), (1, 0.5), (0, 0.75), (1, 0.5)), order=1)


class RecordingField:
    def __init__(self):
        self.times = []

    def vector_field(self, t, u):
        self.times.append(float(t))
        return jnp.zeros_like(u)


class RecordingConstraint(RecordingField):
    def __init__(self):
        super().__init__()
        self.ends = []

    def retract(self, t, u):
        self.ends.append(float(t))
        return u


class RecordingProjection:
    def __init__(self):
        self.times = []

    def project(self, t, u):
        self.times.append(float(t))
        return u


def take_step(scheme, substep, operators):
    split_step(
        build_scheme(scheme, len(operators)),
        build_substeps(substep, len(operators)),
        operators=operators,
        u=jnp.zeros(1),
        t=T0,
        dt=DT,
    )


@pytest.mark.parametrize(
    ("scheme", "substep", "first", "second"),
    [
        ("lie", "euler", [0], [0]),
        ("lie", "midpoint", [0, 1 / 2], [0, 1 / 2]),
        ("lie_reversed", "midpoint", [0, 1 / 2], [0, 1 / 2]),
        ("strang", "euler", [0, 1 / 2], [0]),
        ("strang", "midpoint", [0, 1 / 4, 1 / 2, 3 / 4], [0, 1 / 2]),
        (PARALLEL, "midpoint", [0, 1 / 2], [0, 1 / 2]),
        (THIRDS, "euler", [0, 1 / 4], [0, 1 / 2]),
        (THIRDS, "midpoint", [0, 1 / 8, 1 / 4, 5 / 8], [0, 1 / 4, 1 / 2, 3 / 4]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_field_is_evaluated_at_the_stage_times_of_its_own_clock(scheme, substep, first, second):
    operators = RecordingField(), RecordingField()
    take_step(scheme, substep, operators)
    np.testing.assert_allclose(operators[0].times, T0 + DT * np.array(first), rtol=1e-14)
    np.testing.assert_allclose(operators[1].times, T0 + DT * np.array(second), rtol=1e-14)


@pytest.mark.parametrize(("scheme", "ends"), [("lie", [1]), ("strang", [1 / 2, 1]), (THIRDS, [1 / 4, 1])])
def test_a_constraint_acts_at_the_end_of_each_substep_of_its_operator(scheme, ends):
    operators = RecordingConstraint(), RecordingField()
    take_step(scheme, "midpoint", operators)
    np.testing.assert_allclose(operators[0].ends, T0 + DT * np.array(ends), rtol=1e-14)


@pytest.mark.parametrize(("scheme", "times"), [("lie", [1]), ("strang", [1 / 2, 1])])
def test_a_projection_acts_at_the_end_of_its_letters(scheme, times):
    operators = RecordingProjection(), RecordingField()
    take_step(scheme, "euler", operators)
    np.testing.assert_allclose(operators[0].times, T0 + DT * np.array(times), rtol=1e-14)


def quadrature(f, nodes, weights):
    return float(np.sum(np.asarray(weights) * f(np.asarray(nodes))))


@pytest.mark.parametrize("substep", ["euler", "midpoint"])
@pytest.mark.parametrize("scheme", ["lie", "lie_reversed", "strang", STAGGERED, PARALLEL], ids=str)
def test_fields_of_time_alone_are_integrated_by_the_quadrature_of_their_clocks(scheme, substep):
    steps, t0, horizon = 5, 0.3, 1.7
    dt = horizon / steps
    starts = t0 + dt * np.arange(steps)
    if scheme == "strang":
        begin = np.concatenate([starts, starts + dt / 2])
        length = np.full(2 * steps, dt / 2)
    elif scheme is STAGGERED:
        begin = np.concatenate([[t0], starts + dt / 2])
        length = np.concatenate([[dt / 2], np.full(steps - 1, dt), [dt / 2]])
    else:
        begin, length = starts, np.full(steps, dt)
    shift = 0.0 if substep == "euler" else 0.5
    expected = quadrature(np.cos, begin + shift * length, length) + quadrature(np.exp, starts + shift * dt, dt)
    received = integrate(
        (lambda t, u: jnp.cos(t), lambda t, u: jnp.exp(t)),
        jnp.array(0.0),
        scheme=scheme,
        substep=substep,
        steps=steps,
        horizon=horizon,
        t0=t0,
    )
    np.testing.assert_allclose(received, expected, rtol=1e-13)
