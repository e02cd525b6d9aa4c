"""The local splitting error of a step, and what it comes from: increments, commutators, Lipschitz constants."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ctt.config.name import SamplingName
from ctt.dynamics.operator import Operator, Projection
from ctt.splitting.scheme import build_scheme
from ctt.splitting.step import apply_letter, split_step, walk_clocks
from ctt.splitting.substep import Substep, subtract, sum_states
from ctt.typing import Array, State, Time

_POWER_ITERATIONS = 12


def measure_step(
    substeps: Sequence[Substep],
    *,
    operators: Sequence[Operator | Projection],
    names: Sequence[str],
    u: State,
    t: Time,
    dt: Time,
    sampling: SamplingName = "stage",
) -> dict[str, Array]:
    """Return the local splitting error of one step from a state, whatever scheme is in use.

    Sizes are root mean squares over all entries of the state, in its units.

    * ``free_estimate``: inside Strang's step the last increment against the first, ``u3 - (u2 + (u1 - u))``,
      O(h^2) and free of charge where the scheme is `strang`.
    * ``lie_strang``: the Lie step against the Strang step, the local error of Lie splitting to leading order.
    * ``commutator``: ``sum_{i<j} [f_i, f_j](u)`` with ``[f, g] = g' f - f' g``; ``lie_strang`` tends to
      ``h^2 / 2`` times this as the step and the error of the substeps go to 0.
    * ``increment``: the change of the state in the Strang step, over the size of the state.
    * ``lipschitz_NAME``: the largest singular value of the Jacobian of each field at `u`, by a power
      iteration (a lower bound); an explicit substep wants ``dt`` times it to be about 1 or less.

    Args:
        substeps: the method for each operator.
        operators: the operators; a projection has no field and counts as zero.
        names: a name for each operator.
        u: state at `t`.
        t: time at the start of the step.
        dt: length of the step.
        sampling: see `ctt.integrate`.

    References:
        MATH.md section 5, local error estimate; Hairer, Lubich and Wanner (2006), section III.5.1.
    """
    at = {"operators": operators, "u": u, "dt": dt, "sampling": sampling}
    strang = build_scheme("strang", len(operators))
    states = [u]
    letters = walk_clocks(strang.words[0][1], t, dt)
    middle = t + dt / 2 if sampling == "step" else None
    for letter, clocks in letters:
        at["u"] = states[-1]
        states.append(apply_letter(letter, substeps, clocks=clocks, frozen_at=middle, **at))
    end, at["u"] = states[-1], u
    lie = split_step(build_scheme("lie", len(operators)), substeps, t=t, **at)
    where = t if sampling == "stage" else t + dt / 2
    fields = [_field(f, where) for f in operators if isinstance(f, Operator)]
    labels = [name for name, f in zip(names, operators, strict=True) if isinstance(f, Operator)]
    brackets = [commutator(f, g, u) for f, g in itertools.combinations(fields, 2)] or [jax.tree.map(jnp.zeros_like, u)]
    measures = {
        "free_estimate": _size(subtract(subtract(end, states[-2]), subtract(states[1], u))),
        "lie_strang": _size(subtract(lie, end)),
        "commutator": _size(sum_states(brackets)),
        "increment": _size(subtract(end, u)) / _size(u),
    }
    if len(letters) == 1:
        measures["free_estimate"] = jnp.zeros_like(measures["lie_strang"])
    for name, field in zip(labels, fields, strict=True):
        measures[f"lipschitz_{name}"] = lipschitz(field, u)
    return measures


def commutator(f: Callable[[State], State], g: Callable[[State], State], u: State) -> State:
    """Return ``[f, g](u) = g'(u) f(u) - f'(u) g(u)``, the Lie bracket of two autonomous fields.

    Args:
        f: a field.
        g: a field.
        u: state.

    Example:
        >>> f, g = (lambda u: jnp.array([u[1], 0.0])), (lambda u: jnp.array([0.0, u[0]]))
        >>> commutator(f, g, jnp.array([1.0, 2.0])).tolist()
        [-1.0, 2.0]
    """
    forward = jax.jvp(g, (u,), (f(u),))[1]
    backward = jax.jvp(f, (u,), (g(u),))[1]
    return subtract(forward, backward)


def lipschitz(f: Callable[[State], State], u: State) -> Array:
    """Return the largest singular value of ``f'(u)``, from below, by a power iteration.

    Args:
        f: a field.
        u: state; for a batch the largest of its examples.
    """
    _, pull = jax.vjp(f, u)

    def normalize(v: State) -> State:
        size = _size(v)
        return jax.tree.map(lambda x: x / jnp.where(size > 0, size, 1).astype(x.dtype), v)

    def iterate(_: Any, v: State) -> State:
        (back,) = pull(jax.jvp(f, (u,), (v,))[1])
        return normalize(back)

    # A fixed direction without symmetries.
    start = jax.tree.map(lambda x: jnp.cos(jnp.arange(1.0, x.size + 1)).reshape(x.shape).astype(x.dtype), u)
    v = jax.lax.fori_loop(0, _POWER_ITERATIONS, iterate, normalize(start))
    return _size(jax.jvp(f, (u,), (v,))[1])


def _field(operator: Operator, t: Time) -> Callable[[State], State]:
    return lambda u: operator.vector_field(t, u)


def _size(u: State) -> Array:
    leaves = jax.tree.leaves(u)
    count = sum(leaf.size for leaf in leaves)
    return jnp.sqrt(
        sum(jnp.sum(jnp.square(leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)))) for leaf in leaves) / count
    )
