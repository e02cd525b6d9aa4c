"""Stacked controls: the coefficients of all operators, axis 0 being depth."""

from collections.abc import Callable, Collection, Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.controls.basis import Basis, evaluate_controls
from ctt.dynamics.operator import Operator
from ctt.typing import Array, Key, Time


class Controls(nnx.Module):
    """The operators of a right-hand side with every weight a function of time.

    `operators` has the modules of one instant, but each of its parameters has a leading axis of
    length ``basis.num_coefficients``: the coefficients ``theta_k``. `names` is the order in
    which a scheme counts the operators. `nodal` names operators with one coefficient more, which belong to
    the nodes of the grid and not to its intervals (the outer operators of a staggered scheme).
    """

    def __init__(
        self,
        build_operators: Callable[[nnx.Rngs], Mapping[str, Operator]],
        basis: Basis,
        *,
        key: Key[Array, ""],
        nodal: Collection[str] = (),
    ):
        """Draw the coefficients, each as the weights of a layer of its own.

        Args:
            build_operators: makes the operators of one instant by name, in the order that a scheme counts them;
                a module that two of them share is one control.
            basis: the functions of time.
            key: randomness; coefficient k depends on it and on k alone.
            nodal: names of operators with ``basis.num_coefficients + 1`` coefficients.
        """

        def build(key: Array) -> nnx.Dict:
            return nnx.Dict(build_operators(nnx.Rngs(params=key)))

        num_coefficients = basis.num_coefficients
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(num_coefficients + bool(nodal)))
        structure = nnx.graphdef(nnx.eval_shape(build, key))
        coefficients = jax.vmap(lambda k: nnx.state(build(k)))(keys)
        if nodal:
            coefficients = _trim(coefficients, nodal, num_coefficients)
        self.basis, self.nodal = basis, tuple(nodal)
        self.names = list_names(build_operators)
        self.operators = nnx.merge(structure, coefficients)

    @property
    def coefficients(self) -> nnx.State:
        """The coefficients `[num_coefficients, ...]` of every parameter, which the loop over steps scans."""
        return nnx.state(self.operators)

    def freeze(self, theta: nnx.State) -> list[Operator]:
        """Return the operators of one instant, in the order that a scheme counts them.

        Args:
            theta: a slice of the coefficients, without the leading axis.
        """
        operators = self.instant(theta)
        return [operators[name] for name in self.names]

    def instant(self, theta: nnx.State) -> nnx.Dict:
        """Return the operators of one instant by name.

        Args:
            theta: a slice of the coefficients, without the leading axis.
        """
        return nnx.merge(nnx.graphdef(self.operators), theta)

    def at(self, t: Time) -> list[Operator]:
        """Return the operators with their controls frozen at time `t`.

        A nodal coefficient holds from half a step before its node to half a step after it, that end included.

        Args:
            t: time in [0, horizon].
        """
        if not self.nodal:
            return self.freeze(evaluate_controls(self.basis, self.coefficients, t))
        num_nodes = self.basis.num_coefficients + 1
        position = jnp.asarray(t) * self.basis.num_coefficients / self.basis.horizon
        slack = 64 * jnp.finfo(jnp.result_type(position, float)).eps * num_nodes
        node = jnp.clip(jnp.ceil(position - 0.5 - slack).astype(int), 0, num_nodes - 1)
        nodal, others = split_by_name(self.coefficients, self.nodal)
        theta = merge_by_name(jax.tree.map(lambda x: x[node], nodal), evaluate_controls(self.basis, others, t))
        return self.freeze(theta)


def list_names(build_operators: Callable[[nnx.Rngs], Mapping[str, Operator]]) -> tuple[str, ...]:
    """Return the names of the operators that a function makes, in its order; nothing is computed.

    Args:
        build_operators: makes the operators of one instant by name.
    """
    names: list[str] = []

    def record(key: Array) -> nnx.Dict:
        operators = build_operators(nnx.Rngs(params=key))
        names.extend(operators)  # A module's dictionary forgets the order.
        return nnx.Dict(operators)

    nnx.eval_shape(record, jax.random.key(0))
    return tuple(names)


def _trim(coefficients: nnx.State, nodal: Collection[str], num_coefficients: int) -> nnx.State:
    full, others = split_by_name(coefficients, nodal)
    return merge_by_name(full, jax.tree.map(lambda x: x[:num_coefficients], others))


def split_by_name(coefficients: nnx.State, names: Collection[str]) -> tuple[nnx.State, nnx.State]:
    """Return the coefficients of some operators, and those of the others.

    Args:
        coefficients: those of all operators.
        names: names of operators.
    """
    inside = {name: value for name, value in coefficients.items() if name in names}
    outside = {name: value for name, value in coefficients.items() if name not in names}
    return nnx.State(inside), nnx.State(outside)


def merge_by_name(one: nnx.State, other: nnx.State) -> nnx.State:
    """Return the coefficients of `split_by_name` together again.

    Args:
        one: coefficients of some operators.
        other: those of the others.
    """
    return nnx.State({**dict(one.items()), **dict(other.items())})
