"""The depth of a network: controls, a splitting scheme and a gradient method, as one module.

This is the shell around the pure rollout: the module is taken apart once, outside the loop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from flax import nnx

from ctt.adjoints.method import build_rollout
from ctt.config.schema import Config
from ctt.controls.basis import BASES
from ctt.controls.stack import Controls, list_names, merge_by_name, split_by_name
from ctt.dynamics.dropout import depth_masks, dropout_masks, mask_operator
from ctt.dynamics.operator import Operator
from ctt.splitting.compatibility import check_operators
from ctt.splitting.integrate import Marcher
from ctt.splitting.notation import parse_scheme
from ctt.splitting.rollout import Rollout, trajectory
from ctt.splitting.scheme import Scheme, build_scheme
from ctt.splitting.substep import build_substeps
from ctt.typing import Array, Key, PyTree, RunningCost, Step, Tokens

_DEPTH_TAG = 2**20
"""Keeps the draws of stochastic depth apart from those of dropout."""


class Evolution(nnx.Module):
    """``u_t = sum_i f_i(u; theta_i(t))`` on [0, horizon], discretised by a splitting scheme.

    Special cases, all with ``horizon == steps``: `lie`, `euler`, placement `post` is the encoder of
    Vaswani et al. (2017); placement `pre` is the pre-norm encoder of ViT (MATH.md section 4).

    Attributes:
        scheme: the splitting scheme; None for the literal scheme, whose layer is no word.
        substeps: the method for each operator.
        steps: number of time steps.
        dt: length of a step.
    """

    def __init__(
        self,
        config: Config,
        build_operators: Callable[[nnx.Rngs], Mapping[str, Operator]],
        *,
        key: Key[Array, ""],
        stochastic_depth: tuple[float, float] | None = None,
    ):
        """Draw the controls and choose the discretisation.

        Args:
            config: a resolved config.
            build_operators: makes the operators of one instant by name, in the order that the scheme counts them.
            key: randomness of the initial controls.
            stochastic_depth: probability of leaving out an operator at the start and at the end of this depth; None:
                from 0 to that of the config, as in a network of one stage.

        Raises:
            InputError: the scheme and its substeps do not go together with the operators.
        """
        splitting, controls = config.splitting, config.controls
        assert splitting.horizon is not None  # The config is resolved.
        assert splitting.steps is not None
        assert controls.knots is not None
        names = list_names(build_operators)
        self.steps: int = splitting.steps
        self.dt = splitting.horizon / splitting.steps
        self.scheme = _find_scheme(config, names)
        self.substeps = build_substeps(splitting.operator_substeps or splitting.substep, len(names))
        self.gradient_method = config.gradient.method
        self.dropout = config.model.dropout
        self.stochastic_depth = stochastic_depth or (0.0, config.model.stochastic_depth)
        basis = BASES[controls.basis](controls.knots, splitting.horizon)
        self.steps_per_slice = basis.steps_per_slice(splitting.steps)
        self.is_merged = self.scheme is not None and self.scheme.merge_ends
        nodal = _outer_names(self.scheme, names) if self.scheme is not None and self.is_merged else ()
        self.controls = Controls(build_operators, basis, key=key, nodal=nodal)
        if self.scheme is not None:
            check_operators(
                self.scheme,
                self.substeps,
                [self.controls.operators[name] for name in names],
                names=names,
                allow_reduced_order=splitting.allow_reduced_order,
            )

    def __call__(
        self, u0: Tokens, *, keys: Key[Array, " batch"] | None = None, running_cost: RunningCost | None = None
    ) -> tuple[Tokens, PyTree]:
        """Return the final state and the sum of the running costs.

        After `train()`, operators with batch normalisation use the statistics of the batch, and their running
        averages are updated.

        Args:
            u0: initial state `[batch, tokens, width]`.
            keys: one key an example, for dropout; None: no dropout.
            running_cost: see `ctt.splitting.rollout`.
        """
        run = build_rollout(self.gradient_method)
        if self._collects_statistics:
            return self._call_collecting(run, u0, keys, running_cost)
        u, controls = self._begin(u0, keys)
        return run(self._step(keys), controls, u, running_cost, **self._slices)

    @property
    def _collects_statistics(self) -> bool:
        parts = (part for _, part in nnx.iter_graph(self.controls.operators))
        return any(isinstance(part, nnx.BatchNorm) and not part.use_running_average for part in parts)

    def _call_collecting(
        self, run: Rollout, u0: Tokens, keys: Key[Array, " batch"] | None, running_cost: RunningCost | None
    ) -> tuple[Tokens, PyTree]:
        """Carry the running averages of all steps along with the state; each step writes its own."""
        before = nnx.state(self.controls.operators, nnx.BatchStat)

        def step(carry: tuple[Tokens, nnx.State], theta: nnx.State, n: Any) -> tuple[Tokens, nnx.State]:
            u, statistics = carry
            instant = self.controls.instant(theta)
            operators = self._masked([instant[name] for name in self.controls.names], keys, lambda index: n, u)
            u = self._march(operators).step(u, n * self.dt, self.dt, is_last=n == self.steps - 1)
            own = jax.lax.stop_gradient(nnx.state(instant, nnx.BatchStat))
            return u, jax.tree.map(lambda all_, new: all_.at[n].set(new), statistics, own)

        def cost(n: Any, u: Any, u_next: Any, theta: Any) -> PyTree:
            assert running_cost is not None
            return running_cost(n, u[0], u_next[0], theta)

        (u, after), costs = run(
            step, self.controls.coefficients, (u0, before), None if running_cost is None else cost, **self._slices
        )
        nnx.update(self.controls.operators, after)
        return u, costs

    def trajectory(self, u0: Tokens) -> Tokens:
        """Return all states `[steps + 1, batch, tokens, width]`, the initial one first.

        With merged ends (`strang_staggered`) the outer operator is half a step ahead in the states between.

        Args:
            u0: initial state `[batch, tokens, width]`.
        """
        u, controls = self._begin(u0, None)
        states = trajectory(self._step(None), controls, u, **self._slices)
        return states.at[0].set(u0) if self.is_merged else states

    @property
    def field_evaluations(self) -> int:
        """Evaluations of an operator's field, or of its own flow, in all steps together."""
        if self.scheme is None:
            return len(self.controls.names) * self.steps
        letters = [letter for _, word in self.scheme.words for letter in word.letters]
        costs = [sum(self.substeps[i].evaluations for i in letter.operators) for letter in letters]
        return self.steps * (sum(costs) - costs[-1] * self.is_merged) + costs[-1] * self.is_merged

    @property
    def _slices(self) -> dict[str, int]:
        return {"steps_per_slice": self.steps_per_slice, "num_slices": self.controls.basis.num_coefficients}

    def _begin(self, u0: Tokens, keys: Key[Array, " batch"] | None) -> tuple[Tokens, nnx.State]:
        """Return what the loop starts from, and the controls that it scans.

        With merged ends the outer operator has a control a node: the first one acts before the loop, and a
        step has that of the node at its end.
        """
        coefficients = self.controls.coefficients
        if not self.is_merged:
            return u0, coefficients
        outer, inner = split_by_name(coefficients, self.controls.nodal)
        theta = merge_by_name(*(jax.tree.map(lambda x: x[0], part) for part in (outer, inner)))
        rest = merge_by_name(jax.tree.map(lambda x: x[1:], outer), inner)
        marcher = self._marcher(theta, keys, lambda index: 0, u0)
        return marcher.begin(u0, 0.0, self.dt), rest

    def _step(self, keys: Key[Array, " batch"] | None) -> Step:
        def step(u: Tokens, theta: nnx.State, n: Any) -> Tokens:
            if self.scheme is None:
                (layer,) = self.controls.freeze(theta)
                return layer.step(u, self.dt)  # pyright: ignore[reportAttributeAccessIssue]
            marcher = self._marcher(theta, keys, lambda index: n + (index in self._nodal_indices), u)
            return marcher.step(u, n * self.dt, self.dt, is_last=n == self.steps - 1)

        return step

    @property
    def _nodal_indices(self) -> set[int]:
        return {self.controls.names.index(name) for name in self.controls.nodal}

    def _marcher(
        self, theta: nnx.State, keys: Key[Array, " batch"] | None, position: Callable[[int], Any], u: Tokens
    ) -> Marcher:
        return self._march(self._masked(self.controls.freeze(theta), keys, position, u))

    def _march(self, operators: Sequence[Operator]) -> Marcher:
        assert self.scheme is not None
        return Marcher(self.scheme, self.substeps, tuple(operators))

    def _masked(
        self,
        operators: Sequence[Operator],
        keys: Key[Array, " batch"] | None,
        position: Callable[[int], Any],
        u: Tokens,
    ) -> Sequence[Operator]:
        """Return the operators with their masks; `position` numbers those of each operator along the depth."""
        if keys is None or not (self.dropout or any(self.stochastic_depth)):
            return operators
        return [
            # A mask would spoil an exact substep: the flow of a masked field is not the masked flow.
            f if self.substeps[i].is_exact else mask_operator(f, self._mask(keys, position(i), i, u))
            for i, f in enumerate(operators)
        ]

    def _mask(self, keys: Key[Array, " batch"], n: Any, index: int, u: Tokens) -> Array:
        step_keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, n), index))(keys)
        mask: Any = 1
        if self.dropout:
            mask = dropout_masks(step_keys, u.shape[1:], rate=self.dropout, dtype=u.dtype)
        if any(self.stochastic_depth):
            depth_keys = jax.vmap(lambda key: jax.random.fold_in(key, _DEPTH_TAG))(step_keys)
            mask = mask * depth_masks(depth_keys, u.ndim, rate=self._drop_rate(n, index), dtype=u.dtype)
        return mask

    def _drop_rate(self, n: Any, index: int) -> Any:
        """Return the probability of leaving out an operator, linear in time: that of the end of a step, or of a node.

        References:
            Huang et al., arXiv:1603.09382, equation (4), with l / L the time over the horizon.
        """
        start, end = self.stochastic_depth
        return start + (end - start) * (n + (index not in self._nodal_indices)) / self.steps


def _find_scheme(config: Config, names: tuple[str, ...]) -> Scheme | None:
    splitting = config.splitting
    if splitting.scheme == "literal":
        return None
    if splitting.word is not None:
        return parse_scheme(splitting.word, names)
    return build_scheme(splitting.scheme, len(names))


def _outer_names(scheme: Scheme, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(names[i] for i in sorted(scheme.words[0][1].letters[0].operators))
