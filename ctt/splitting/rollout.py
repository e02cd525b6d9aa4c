"""The loop over time steps: a pure function, one `lax.scan` over per-step slices of the controls."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ctt.typing import PyTree, RunningCost, State, Step


class Rollout(Protocol):
    """The signature that every gradient method shares."""

    def __call__(
        self,
        step: Step,
        controls: PyTree,
        u0: State,
        running_cost: RunningCost | None = None,
        *,
        steps_per_slice: int = 1,
        num_slices: int | None = None,
    ) -> tuple[State, PyTree]:
        """See `rollout`."""
        ...


def rollout(
    step: Step,
    controls: PyTree,
    u0: State,
    running_cost: RunningCost | None = None,
    *,
    steps_per_slice: int = 1,
    num_slices: int | None = None,
    transform_body: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda body: body,
) -> tuple[State, PyTree]:
    """Iterate ``u_{n+1} = step(u_n, theta_n, n)`` and sum a running cost along the way.

    Compile time does not depend on the number of steps.

    Args:
        step: the step map.
        controls: pytree of arrays `[slices, ...]`; slice k is the control of `steps_per_slice` steps.
        u0: initial state.
        running_cost: ``L(n, u_n, u_{n+1}, theta_n)``, a scalar or a pytree of scalars; None: no cost.
        steps_per_slice: how many consecutive steps share a slice, >= 1.
        num_slices: length of axis 0; None: read off `controls`, which then must have an array.
        transform_body: wraps one step and its cost, such as `jax.checkpoint`.

    Returns:
        The final state, and the sum of the running costs (``None`` without one).

    Example:
        >>> rollout(lambda u, theta, n: u + theta, jnp.array([1.0, 2.0]), jnp.array(0.0))[0].item()
        3.0
    """
    body = transform_body(_build_body(step, running_cost))
    theta0 = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), controls)
    cost0 = None
    if running_cost is not None:
        shapes = jax.eval_shape(
            lambda u, theta: running_cost(jnp.int32(0), u, step(u, theta, jnp.int32(0)), theta), u0, theta0
        )
        cost0 = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    (u, costs), _ = _scan(lambda carry, x: (body(carry, x), None), (u0, cost0), controls, steps_per_slice, num_slices)
    return u, costs


def trajectory(
    step: Step, controls: PyTree, u0: State, *, steps_per_slice: int = 1, num_slices: int | None = None
) -> State:
    """Return all states of `rollout`, the initial one first.

    Args:
        step: the step map.
        controls: pytree of arrays `[slices, ...]`.
        u0: initial state.
        steps_per_slice: how many consecutive steps share a slice, >= 1.
        num_slices: length of axis 0; None: read off `controls`, which then must have an array.

    Returns:
        The pytree of `u0` with a leading axis of length ``slices * steps_per_slice + 1``.
    """
    body = _build_body(step, None)

    def record(carry: Any, x: Any) -> tuple[Any, State]:
        carry = body(carry, x)
        return carry, carry[0]

    _, states = _scan(record, (u0, None), controls, steps_per_slice, num_slices)
    states = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states) if steps_per_slice > 1 else states
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), u0, states)


def _build_body(step: Step, running_cost: RunningCost | None) -> Callable[[Any, Any], Any]:
    def body(carry: tuple[State, PyTree], x: tuple[Any, PyTree]) -> tuple[State, PyTree]:
        (u, costs), (n, theta) = carry, x
        u_next = step(u, theta, n)
        if running_cost is not None:
            costs = jax.tree.map(jnp.add, costs, running_cost(n, u, u_next, theta))
        return u_next, costs

    return body


def _scan(
    body: Callable[[Any, Any], Any], carry: Any, controls: PyTree, steps_per_slice: int, num_slices: int | None
) -> Any:
    length = jax.tree.leaves(controls)[0].shape[0] if num_slices is None else num_slices
    indices = jnp.arange(length * steps_per_slice, dtype=jnp.int32)
    if steps_per_slice == 1:
        return jax.lax.scan(body, carry, (indices, controls))

    def over_slice(carry: Any, x: Any) -> Any:
        inner, theta = x
        return jax.lax.scan(lambda c, n: body(c, (n, theta)), carry, inner)

    return jax.lax.scan(over_slice, carry, (indices.reshape(length, steps_per_slice), controls))
