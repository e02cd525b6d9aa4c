"""Bases in time: ``theta(t) = sum_k phi_k(t) theta_k`` (MATH.md section 6)."""

import abc
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp

from ctt.config.error import InputError
from ctt.typing import Array, Float, PyTree, Time

T = TypeVar("T", bound=PyTree)


@dataclass(frozen=True)
class Basis(abc.ABC):
    """A basis of functions of time on [0, horizon].

    Attributes:
        num_coefficients: number of basis functions, and length of axis 0 of every coefficient.
        horizon: final time.
    """

    num_coefficients: int
    horizon: float

    @abc.abstractmethod
    def weights(self, t: Time) -> Float[Array, " num_coefficients"]:
        """Return ``phi_k(t)`` for every k.

        Args:
            t: time in [0, horizon].
        """

    def evaluate(self, coefficients: Float[Array, "num_coefficients ..."], t: Time) -> Array:
        """Return ``sum_k phi_k(t) theta_k``, axis 0 contracted.

        Args:
            coefficients: one stacked array.
            t: time in [0, horizon].
        """
        return jnp.tensordot(self.weights(t).astype(coefficients.dtype), coefficients, axes=1)

    @abc.abstractmethod
    def steps_per_slice(self, steps: int) -> int:
        """Return over how many consecutive steps one slice of axis 0 is the control.

        Args:
            steps: number of time steps on [0, horizon].

        Raises:
            InputError: the knots and the steps do not fit.
        """


class PiecewiseConstant(Basis):
    """The indicator functions of `num_coefficients` equal intervals.

    One coefficient a step is the ordinary Transformer, whose layers have weights of their own;
    one coefficient in all ties the weights of all layers.
    """

    def weights(self, t: Time) -> Float[Array, " num_coefficients"]:
        """Return the indicator of the interval that holds `t`, closed on the left.

        Args:
            t: time in [0, horizon]; a time within round-off of a knot belongs to the interval that begins
                there, and the horizon itself to the last one.
        """
        return jax.nn.one_hot(self._index(t), self.num_coefficients)

    def evaluate(self, coefficients: Float[Array, "num_coefficients ..."], t: Time) -> Array:
        """Return the coefficient of the interval that holds `t`: a look-up, no contraction.

        Args:
            coefficients: one stacked array.
            t: time in [0, horizon].
        """
        return coefficients[self._index(t)]

    def _index(self, t: Time) -> Array:
        position = jnp.asarray(t, jnp.result_type(float, t)) * self.num_coefficients / self.horizon
        # A knot computed as n * dt may fall short of itself by a few units of round-off.
        slack = 8 * jnp.finfo(position.dtype).eps * (1 + jnp.abs(position))
        return jnp.clip(jnp.floor(position + slack).astype(int), 0, self.num_coefficients - 1)

    def steps_per_slice(self, steps: int) -> int:
        """Return ``steps / num_coefficients``.

        Args:
            steps: number of time steps on [0, horizon].

        Raises:
            InputError: `num_coefficients` does not divide `steps`.
        """
        if steps % self.num_coefficients:
            raise InputError(
                f"`controls.knots` must divide `splitting.steps` = {steps}, got {self.num_coefficients}. "
                "Set one of them in the config file or on the command line."
            )
        return steps // self.num_coefficients


BASES: dict[str, type[Basis]] = {"piecewise_constant": PiecewiseConstant}
"""Bases by name."""


def evaluate_controls(basis: Basis, coefficients: T, t: Time) -> T:
    """Return the controls at a time, ``theta(t) = sum_k phi_k(t) theta_k``.

    Args:
        basis: the functions ``phi_k``.
        coefficients: pytree of arrays `[num_coefficients, ...]`.
        t: time in [0, horizon].

    Returns:
        The same pytree with axis 0 contracted.

    Example:
        >>> basis = PiecewiseConstant(num_coefficients=2, horizon=1.0)
        >>> float(evaluate_controls(basis, jnp.array([3.0, 5.0]), 0.75))
        5.0
    """
    return jax.tree.map(lambda theta: basis.evaluate(theta, t), coefficients)
