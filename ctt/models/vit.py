"""The Vision Transformer: a patch lift, an evolution in depth, a linear read-out."""

import diffrax
import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.dynamics.precision import lift_precision
from ctt.models.evolution import Evolution
from ctt.models.lift import PatchLift
from ctt.models.operators import build_normalization, build_operators
from ctt.models.solution import solve_evolution
from ctt.typing import Array, Images, Key, Logits, PyTree, RunningCost, Tokens


class ViT(nnx.Module):
    """``read_out . P . rollout . lift``.

    With placement `pre` the closing projection P stands before the read-out, as in ViT. With
    `post` the state lives on the constraint set, so P brings the lifted tokens onto it at the start
    and none is needed at the end. With `tangent` the state of the loop is that of the moving frame, on S1(0, 1)
    from start to end; it leaves the frame before the read-out (MATH.md sections 1 and 4).

    References:
        Dosovitskiy et al., arXiv:2010.11929; arXiv:2510.03989, section 5.
    """

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        """Create the model with its initial weights.

        Args:
            config: a resolved config.
            key: randomness of the initial weights.
        """
        model, data = config.model, config.data
        assert data.num_classes is not None  # The config is resolved.
        dtype, param_dtype = jnp.dtype(model.dtype), jnp.promote_types(model.dtype, jnp.float32)
        lift_key, depth_key, out_key = jax.random.split(key, 3)
        self.image_shape, self.pooling = data.image_shape, model.pooling
        self.placement = config.normalization.placement
        self.lift = PatchLift(
            data,
            patch_size=model.patch_size,
            width=model.width,
            position=model.position,
            has_class_token=model.pooling == "cls",
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=nnx.Rngs(params=lift_key),
        )
        self.evolution = Evolution(config, build_operators(config), key=depth_key)
        rngs = nnx.Rngs(params=out_key)
        self.normalization = build_normalization(config, rngs)
        self.read_out = nnx.Linear(
            model.width,
            data.num_classes,
            kernel_init=nnx.initializers.truncated_normal(0.02),
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )

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
            running_cost: see `ctt.splitting.rollout`.

        Raises:
            InputError: the images do not have the shape of the config.
        """
        u, costs = self.evolution(self.initial_state(images), keys=keys, running_cost=running_cost)
        return self.classify(u), costs

    def classify(self, u: Tokens) -> Logits:
        """Return the logits `[batch, classes]` of a final state.

        Args:
            u: state at the horizon `[batch, tokens, width]`.
        """
        if self.placement == "pre":
            u = self.normalization.project(self.evolution.dt * self.evolution.steps, u)
        elif self.placement == "tangent":
            u = self.normalization.leave_frame(u)
        pooled = u[:, 0] if self.pooling == "cls" else jnp.mean(lift_precision(u), axis=1).astype(u.dtype)
        return lift_precision(self.read_out(pooled))

    def trajectory(self, images: Images) -> Tokens:
        """Return the state at every time step, `[steps + 1, batch, tokens, width]`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].

        Raises:
            InputError: the images do not have the shape of the config.
        """
        return self.evolution.trajectory(self.initial_state(images))

    def solve(
        self, images: Images, *, rtol: float = 1e-3, atol: float = 1e-6, max_steps: int = 4096, dense: bool = False
    ) -> diffrax.Solution:
        """Integrate the equation with adaptive steps, see `ctt.models.solution.solve_evolution`.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].
            rtol: relative tolerance of the local error, > 0.
            atol: absolute tolerance of the local error, >= 0.
            max_steps: at most so many steps.
            dense: keep the whole trajectory, for ``solution.evaluate(t)``.

        Returns:
            A solution whose states are `[batch, tokens, width]`; `classify` turns the last one into logits.

        Raises:
            InputError: the images do not have the shape of the config, or the scheme is the literal one.
        """
        u0 = self.initial_state(images)
        return solve_evolution(self.evolution, u0, rtol=rtol, atol=atol, max_steps=max_steps, dense=dense)

    def initial_state(self, images: Images) -> Tokens:
        """Return the state at time 0 `[batch, tokens, width]`: the lifted image, on the constraint set if there is one.

        Args:
            images: raw pixels `[batch, height, width, channels]`, uint8 or float in [0, 255].

        Raises:
            InputError: the images do not have the shape of the config.
        """
        images = jnp.asarray(images)
        if images.ndim != 4 or images.shape[1:] != self.image_shape:
            raise InputError(
                f"Images must have the shape [batch, {', '.join(map(str, self.image_shape or ()))}], got "
                f"{list(images.shape)}. Resize them (`ctt.data.read_image` does) or set data.image_shape."
            )
        u = self.lift(images)
        if self.placement == "tangent":
            return self.normalization.retract(u)
        return self.normalization.project(0.0, u) if self.placement == "post" else u
