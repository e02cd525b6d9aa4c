"""The Vision Transformer: a patch lift, an evolution in depth, a linear read-out."""

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.schema import Config
from ctt.dynamics.precision import lift_precision
from ctt.models.classifier import Classifier
from ctt.models.evolution import Evolution
from ctt.models.lift import PatchLift
from ctt.models.operators import build_normalization, build_operators, build_read_out
from ctt.typing import Array, Key, Logits, Tokens


class ViT(Classifier):
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
        self.read_out = build_read_out(config, rngs)

    @property
    def evolutions(self) -> tuple[Evolution, ...]:
        """The depth, one stage."""
        return (self.evolution,)

    def enter(self, stage: int, x: Array) -> Tokens:
        """Return the lifted image `[batch, tokens, width]`, on the constraint set if there is one.

        Args:
            stage: 0.
            x: raw pixels `[batch, height, width, channels]`.
        """
        del stage
        return self.enter_set(self.normalization, self.lift(x))

    def classify(self, u: Tokens) -> Logits:
        """Return the logits `[batch, classes]` of a final state.

        Args:
            u: state at the horizon `[batch, tokens, width]`.
        """
        if self.placement == "pre":
            u = self.normalization.project(0.0, u)
        elif self.placement == "tangent":
            u = self.normalization.leave_frame(u)
        return lift_precision(self.read_out(self.pool(u)))
