"""What every model is: stages of depth, each with a state of its own, between pixels and logits."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.error import InputError
from ctt.dynamics.normalization import Normalization
from ctt.dynamics.precision import lift_precision
from ctt.models.evolution import Evolution
from ctt.models.solution import measure_splitting, solve_evolution
from ctt.typing import Array, Images, Key, Logits, PyTree, RunningCost, Tokens

_STAGE_TAG = 2**20
"""Keeps the keys of later stages apart from those of the first, whose steps are numbered from 0."""


@dataclass(frozen=True)
class AdaptiveLogits:
    """Logits of adaptive steps, and what they took.

    Attributes:
        logits: `[batch, classes]`.
        is_done: whether the steps sufficed.
        accepted: accepted steps, all stages together.
        rejected: rejected steps.
    """

    logits: Logits
    is_done: Array
    accepted: Array
    rejected: Array


class Classifier(nnx.Module):
    """``read_out . rollout . enter . ... . rollout . enter``: one evolution in depth a stage.

    A subclass says what its evolutions are, how a stage begins, and how the last state is read out. Where the
    normalisation has a set, the state of a stage lives on it (MATH.md sections 1 and 4).
    """

    image_shape: tuple[int, int, int] | None
    placement: str
    pooling: str

    @property
    @abc.abstractmethod
    def evolutions(self) -> tuple[Evolution, ...]:
        """The depth of each stage."""

    @abc.abstractmethod
    def enter(self, stage: int, x: Array) -> Tokens:
        """Return the state at the start of a stage `[batch, tokens, width]`.

        Args:
            stage: its number, from 0.
            x: raw pixels for the first stage, else the final state of the stage before.
        """

    @abc.abstractmethod
    def classify(self, u: Tokens) -> Logits:
        """Return the logits `[batch, classes]` of a final state.

        Args:
            u: state at the horizon `[batch, tokens, width]`.
        """

    def __call__(self, images: Images, *, keys: Key[Array, " batch"] | None = None) -> Logits:
        """Return the logits `[batch, classes]`, in at least float32.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            keys: one key an example, for dropout; None: no dropout.

        Raises:
            InputError: the images do not have the shape of the config.
        """
        return self.forward(images, keys=keys)[0]

    def forward(
        self,
        images: Images,
        *,
        keys: Key[Array, " batch"] | None = None,
        running_cost: RunningCost | None = None,
    ) -> tuple[Logits, PyTree]:
        """Return the logits `[batch, classes]` and the sum of the running costs.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            keys: one key an example, for dropout; None: no dropout.
            running_cost: see `ctt.splitting.rollout`; in several stages its step counts from 0 in each.

        Raises:
            InputError: the images do not have the shape of the config.
        """
        u: Any = self.check_images(images)
        total: PyTree = None
        for stage, evolution in enumerate(self.evolutions):
            own = keys if keys is None or stage == 0 else _fold(keys, _STAGE_TAG + stage)
            u, costs = evolution(self.enter(stage, u), keys=own, running_cost=running_cost)
            total = costs if stage == 0 else jax.tree.map(jnp.add, total, costs)
        return self.classify(u), total

    def march(self, images: Images, advance: Callable[[int, Tokens], Tokens]) -> Tokens:
        """Return the final state when every stage is integrated by `advance`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            advance: from a stage's number and its initial state to its final one.
        """
        u = self.check_images(images)
        for stage in range(len(self.evolutions)):
            u = advance(stage, self.enter(stage, u))
        return u

    def initial_state(self, images: Images) -> Tokens:
        """Return the state at time 0 `[batch, tokens, width]`: the lifted image, on the constraint set if there is one.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].

        Raises:
            InputError: the images do not have the shape of the config.
        """
        return self.enter(0, self.check_images(images))

    def trajectory(self, images: Images) -> Any:
        """Return the state at every time step, `[steps + 1, batch, tokens, width]`; with several stages one array each.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].

        Raises:
            InputError: the images do not have the shape of the config.
        """
        states = self.trajectories(images)
        return states[0] if len(states) == 1 else states

    def trajectories(self, images: Images) -> tuple[Tokens, ...]:
        """Return the state at every time step, for each stage an array `[steps + 1, batch, tokens, width]`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].

        Raises:
            InputError: the images do not have the shape of the config.
        """
        u, states = self.check_images(images), []
        for stage, evolution in enumerate(self.evolutions):
            states.append(evolution.trajectory(self.enter(stage, u)))
            u = states[-1][-1]
        return tuple(states)

    def solve(
        self, images: Images, *, rtol: float = 1e-3, atol: float = 1e-6, max_steps: int = 4096, dense: bool = False
    ) -> Any:
        """Integrate the equation with adaptive steps: the `solutions`, or with one stage the only one.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            rtol: relative tolerance of the local error, > 0.
            atol: absolute tolerance of the local error, >= 0.
            max_steps: at most so many steps a stage.
            dense: keep the whole trajectory, for ``solution.evaluate(t)``.

        Raises:
            InputError: the images do not have the shape of the config, or the scheme is the literal one.
        """
        solutions = self.solutions(images, rtol=rtol, atol=atol, max_steps=max_steps, dense=dense)
        return solutions[0] if len(solutions) == 1 else solutions

    def solutions(
        self, images: Images, *, rtol: float = 1e-3, atol: float = 1e-6, max_steps: int = 4096, dense: bool = False
    ) -> tuple[diffrax.Solution, ...]:
        """Integrate the equation with adaptive steps, see `ctt.models.solution.solve_evolution`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            rtol: relative tolerance of the local error, > 0.
            atol: absolute tolerance of the local error, >= 0.
            max_steps: at most so many steps a stage.
            dense: keep the whole trajectory, for ``solution.evaluate(t)``.

        Returns:
            A solution a stage, whose states are `[batch, tokens, width]`; `classify` turns the last state into logits.

        Raises:
            InputError: the images do not have the shape of the config, or the scheme is the literal one.
        """
        u: Any = self.check_images(images)
        results = []
        for stage, evolution in enumerate(self.evolutions):
            start = self.enter(stage, u)
            solution = solve_evolution(evolution, start, rtol=rtol, atol=atol, max_steps=max_steps, dense=dense)
            assert solution.ys is not None
            results.append(solution)
            u = solution.ys[-1]
        return tuple(results)

    def classify_adaptively(self, images: Images, *, rtol: float, atol: float, max_steps: int) -> AdaptiveLogits:
        """Return the logits by adaptive steps, and how many.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            rtol: relative tolerance of the local error, > 0.
            atol: absolute tolerance of the local error, >= 0.
            max_steps: at most so many steps a stage.
        """
        solutions = self.solutions(images, rtol=rtol, atol=atol, max_steps=max_steps)
        (*_, last) = solutions
        assert last.ys is not None
        is_done = [solution.result == diffrax.RESULTS.successful for solution in solutions]
        return AdaptiveLogits(
            self.classify(last.ys[-1]),
            jnp.all(jnp.stack(is_done)),
            jnp.sum(jnp.stack([solution.stats["num_accepted_steps"] for solution in solutions])),
            jnp.sum(jnp.stack([solution.stats["num_rejected_steps"] for solution in solutions])),
        )

    def measure_splitting(self, images: Images) -> dict[str, Array]:
        """Return the local splitting error of every step, see `ctt.splitting.meter.measure_step`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].

        Returns:
            By name, an array `[steps]`, the steps of all stages in a row.

        Raises:
            InputError: the scheme is the literal one, which splits nothing.
        """
        u, values = self.check_images(images), []
        for stage, evolution in enumerate(self.evolutions):
            start = self.enter(stage, u)
            values.append(measure_splitting(evolution, start))
            u = evolution(start)[0]
        return {name: jnp.concatenate([value[name] for value in values]) for name in values[0]}

    def check_images(self, images: Images) -> Array:
        """Return the images as an array.

        Args:
            images: raw pixels `[batch, height, width, channels]`.

        Raises:
            InputError: they do not have the shape of the config.
        """
        images = jnp.asarray(images)
        if images.ndim != 4 or images.shape[1:] != self.image_shape:
            raise InputError(
                f"Images must have the shape [batch, {', '.join(map(str, self.image_shape or ()))}], got "
                f"{list(images.shape)}. Resize them (`ctt.data.read_image` does) or set data.image_shape."
            )
        return images

    def enter_set(self, normalization: Normalization, u: Tokens) -> Tokens:
        """Return a state brought onto the constraint set of a stage, if its placement has one.

        Args:
            normalization: that of the stage's start.
            u: state `[batch, tokens, width]`.
        """
        if self.placement == "tangent":
            return normalization.retract(u)
        return normalization.project(0.0, u) if self.placement == "post" else u

    def pool(self, u: Tokens) -> Array:
        """Return what the read-out sees `[batch, width]`: the class token, or the mean of the tokens.

        Args:
            u: state `[batch, tokens, width]`.
        """
        return u[:, 0] if self.pooling == "cls" else jnp.mean(lift_precision(u), axis=1).astype(u.dtype)


def _fold(keys: Key[Array, " batch"], tag: int) -> Key[Array, " batch"]:
    return jax.vmap(lambda key: jax.random.fold_in(key, tag))(keys)
