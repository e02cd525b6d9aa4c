"""Stacked controls: the coefficients of all operators, axis 0 being depth."""

from collections.abc import Callable, Mapping

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
    which a scheme counts the operators.
    """

    def __init__(self, builders: Mapping[str, Callable[[nnx.Rngs], Operator]], basis: Basis, *, key: Key[Array, ""]):
        """Draw the coefficients, each as the weights of a layer of its own.

        Args:
            builders: makes each operator of one instant, by name, in the order that a scheme counts them.
            basis: the functions of time.
            key: randomness; coefficient k depends on it and on k alone.
        """

        def build(key: Array) -> nnx.Dict:
            rngs = nnx.Rngs(params=key)
            return nnx.Dict({name: builder(rngs) for name, builder in builders.items()})

        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(basis.num_coefficients))
        structure = nnx.graphdef(nnx.eval_shape(lambda: build(key)))
        self.basis = basis
        self.names = tuple(builders)
        self.operators = nnx.merge(structure, jax.vmap(lambda k: nnx.state(build(k)))(keys))

    @property
    def coefficients(self) -> nnx.State:
        """The coefficients `[num_coefficients, ...]` of every parameter, which the loop over steps scans."""
        return nnx.state(self.operators)

    def freeze(self, theta: nnx.State) -> list[Operator]:
        """Return the operators of one instant, in the order that a scheme counts them.

        Args:
            theta: a slice of the coefficients, without the leading axis.
        """
        operators = nnx.merge(nnx.graphdef(self.operators), theta)
        return [operators[name] for name in self.names]

    def at(self, t: Time) -> list[Operator]:
        """Return the operators with their controls frozen at time `t`.

        Args:
            t: time in [0, horizon].
        """
        return self.freeze(evaluate_controls(self.basis, self.coefficients, t))
