"""The projection property: normalisation is the nearest point of its set, by random search around it."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ctt.certificates.check import Check, check_bound, exact_arithmetic
from ctt.dynamics.normalization import project_to_s1, project_to_sphere, project_to_tangent

_WIDTH, _TOKENS, _TRIES = 16, 8, 2000


def check_projections() -> Iterator[Check]:
    """Check that the projections give the nearest point of their sets, and that tangent projections are tangent.

    All for eps = 0. The search draws points of the set at all distances from the projection, from far away to a
    millionth, and asks whether one is nearer.

    References:
        arXiv:2510.03989, Theorem 3.1.
    """
    with exact_arithmetic():
        u = jnp.asarray(1 + 2 * np.random.default_rng(0).standard_normal((_TOKENS, _WIDTH)))
        s1 = lambda v: project_to_s1(v, 0.0)  # noqa: E731
        moved = lambda v: 0.3 + 0.7 * project_to_s1(v, 0.0)  # noqa: E731
        sphere = lambda v: project_to_sphere(v, 0.0)  # noqa: E731
        relu = jax.nn.relu
        checks = [
            _nearest("layer normalisation on S1(0, 1)", s1, u),
            _nearest("layer normalisation on S1(0.3, 0.7)", moved, u),
            _nearest("RMS normalisation on the sphere", sphere, u),
            _nearest("ReLU on S2", relu, u),
            _idempotent("layer normalisation", s1, u),
            _idempotent("layer normalisation on S1(0.3, 0.7)", moved, u),
            _idempotent("RMS normalisation", sphere, u),
            _tangent("layer normalisation", s1, u, "s1"),
            _tangent("RMS normalisation", sphere, u, "sphere"),
        ]
    yield from checks


def _nearest(what: str, project: Callable[[jax.Array], jax.Array], u: jax.Array) -> Check:
    """Search the set, which is the image of the projection, for a point nearer to `u`."""
    generator = np.random.default_rng(1)
    point = project(u)
    scales = jnp.asarray(10.0 ** generator.uniform(-6, 1, (_TRIES, 1, 1)))
    candidates = project(point + scales * jnp.asarray(generator.standard_normal((_TRIES, *u.shape))))
    found = jnp.min(jnp.linalg.norm(candidates - u, axis=-1), axis=0)
    gain = float(jnp.max(jnp.linalg.norm(point - u, axis=-1) - found))
    return check_bound(f"{what} is the nearest point of its set", gain, 1e-12, tries=_TRIES)


def _idempotent(what: str, project: Callable[[jax.Array], jax.Array], u: jax.Array) -> Check:
    once = project(u)
    return check_bound(f"{what} twice is once", float(jnp.max(jnp.abs(project(once) - once))), 1e-13)


def _tangent(what: str, project: Callable[[jax.Array], jax.Array], u: jax.Array, constraint: str) -> Check:
    """Compare the tangent projection with the derivative of the projection at a point of the set."""
    point = project(u)
    direction = jnp.asarray(np.random.default_rng(2).standard_normal(u.shape))
    derivative = jax.jvp(project, (point,), (direction,))[1]
    received = project_to_tangent(point, direction, 0.0, constraint=constraint)  # pyright: ignore[reportArgumentType]
    difference = float(jnp.max(jnp.abs(received - derivative)))
    return check_bound(f"the tangent projection is the derivative of {what}", difference, 1e-12)
