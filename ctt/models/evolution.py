"""The depth of a network: controls, a splitting scheme and a gradient method, as one module.

This is the shell around the pure rollout: the module is taken apart once, outside the loop.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from ctt.adjoints.method import build_rollout
from ctt.config.schema import Config
from ctt.controls.basis import BASES
from ctt.controls.stack import Controls
from ctt.dynamics.dropout import dropout_masks, mask_operator
from ctt.dynamics.operator import Operator
from ctt.splitting.rollout import trajectory
from ctt.splitting.scheme import build_scheme
from ctt.splitting.step import split_step
from ctt.splitting.substep import build_substep
from ctt.typing import Array, Key, PyTree, RunningCost, Step, Tokens


class Evolution(nnx.Module):
    """``u_t = sum_i f_i(u; theta_i(t))`` on [0, horizon], discretised by a splitting scheme.

    Special cases, all with ``horizon == steps``: `lie`, `euler`, placement `post` is the encoder of
    Vaswani et al. (2017); placement `pre` is the pre-norm encoder of ViT (MATH.md section 4).
    """

    def __init__(self, config: Config, builders: Mapping[str, Callable[[nnx.Rngs], Operator]], *, key: Key[Array, ""]):
        """Draw the controls and choose the discretisation.

        Args:
            config: a resolved config.
            builders: makes each operator of one instant, in the order that the scheme counts them.
            key: randomness of the initial controls.
        """
        splitting, controls = config.splitting, config.controls
        assert splitting.horizon is not None  # The config is resolved.
        assert controls.knots is not None
        self.steps = splitting.steps
        self.dt = splitting.horizon / splitting.steps
        self.scheme = build_scheme(splitting.scheme, len(builders))
        self.substep = build_substep(splitting.substep)
        self.gradient_method = config.gradient.method
        self.dropout = config.model.dropout
        basis = BASES[controls.basis](controls.knots, splitting.horizon)
        self.steps_per_slice = basis.steps_per_slice(splitting.steps)
        self.controls = Controls(builders, basis, key=key)

    def __call__(
        self, u0: Tokens, *, keys: Key[Array, " batch"] | None = None, running_cost: RunningCost | None = None
    ) -> tuple[Tokens, PyTree]:
        """Return the final state and the sum of the running costs.

        Args:
            u0: initial state `[batch, tokens, width]`.
            keys: one key an example, for dropout; None: no dropout.
            running_cost: see `ctt.splitting.rollout`.
        """
        run = build_rollout(self.gradient_method)
        coefficients = self.controls.coefficients
        return run(self._step(keys), coefficients, u0, running_cost, steps_per_slice=self.steps_per_slice)

    def trajectory(self, u0: Tokens) -> Tokens:
        """Return all states `[steps + 1, batch, tokens, width]`, the initial one first.

        Args:
            u0: initial state `[batch, tokens, width]`.
        """
        return trajectory(self._step(None), self.controls.coefficients, u0, steps_per_slice=self.steps_per_slice)

    def _step(self, keys: Key[Array, " batch"] | None) -> Step:
        def step(u: Tokens, theta: nnx.State, n: Any) -> Tokens:
            operators = self.controls.freeze(theta)
            if keys is not None and self.dropout > 0:
                operators = [mask_operator(f, self._mask(keys, n, i, u)) for i, f in enumerate(operators)]
            return split_step(self.scheme, self.substep, operators=operators, u=u, t=n * self.dt, dt=self.dt)

        return step

    def _mask(self, keys: Key[Array, " batch"], n: Any, index: int, u: Tokens) -> Array:
        step_keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, n), index))(keys)
        return dropout_masks(step_keys, u.shape[1:], rate=self.dropout, dtype=u.dtype)
