"""The Convolutional vision Transformer: stages of a convolutional embedding and an evolution in depth."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from ctt.config.schema import Config
from ctt.config.stage import split_stages, token_grid
from ctt.dynamics.precision import lift_precision
from ctt.models.classifier import Classifier
from ctt.models.embedding import ConvolutionalEmbedding
from ctt.models.evolution import Evolution
from ctt.models.lift import normalize_pixels
from ctt.models.operators import build_normalization, build_operators, build_read_out
from ctt.typing import Array, Key, Logits, Tokens


class Stage(nnx.Module):
    """One stage: an embedding of the mesh before it, a class token where it has one, and an evolution in depth."""

    def __init__(self, config: Config, *, is_last: bool, stochastic_depth: tuple[float, float], key: Key[Array, ""]):
        """Create the stage with its initial weights.

        Args:
            config: the config of this stage, of `split_stages`.
            is_last: whether the model's own closing normalisation serves this stage.
            stochastic_depth: probability of leaving out an operator at the start and at the end of the stage.
            key: randomness of the initial weights.
        """
        model, stages = config.model, config.model.stages
        dtype, param_dtype = jnp.dtype(model.dtype), jnp.promote_types(model.dtype, jnp.float32)
        embedding_key, depth_key = jax.random.split(key)
        rngs = nnx.Rngs(params=embedding_key)
        assert config.data.image_shape is not None  # The config is resolved.
        self.grid = token_grid(config)
        self.embedding = ConvolutionalEmbedding(
            config.data.image_shape[2],
            model.width,
            kernel=stages.kernels[0],
            stride=stages.strides[0],
            padding=stages.paddings[0],
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        draw = nnx.initializers.truncated_normal(0.02)
        has_token = model.pooling == "cls"
        self.class_token = nnx.Param(draw(rngs.params(), (model.width,), param_dtype)) if has_token else None
        has_set = config.normalization.placement != "pre" and not is_last
        self.normalization = build_normalization(config, rngs) if has_set else None
        self.evolution = Evolution(config, build_operators(config), key=depth_key, stochastic_depth=stochastic_depth)

    def embed(self, mesh: Array) -> Tokens:
        """Return the tokens of the stage `[batch, tokens, width]`, the class token first.

        Args:
            mesh: normalised pixels, or tokens of the stage before on their mesh, `[batch, rows, columns, features]`.
        """
        tokens = self.embedding(mesh)
        if self.class_token is None:
            return tokens
        token = jnp.broadcast_to(self.class_token[...].astype(tokens.dtype), (tokens.shape[0], 1, tokens.shape[2]))
        return jnp.concatenate([token, tokens], axis=1)


class CvT(Classifier):
    """``read_out . P . (rollout . embedding) . ... . (rollout . embedding)``.

    The kernels of query, key and value are translation invariant over the 2-D mesh of tokens, and between stages
    the mesh is coarsened; the stages divide the time [0, horizon] among themselves. The placement of the
    normalisation is that of ViT in every stage.

    References:
        Wu et al., "CvT: Introducing Convolutions to Vision Transformers", arXiv:2103.15808; arXiv:2510.03989,
        section 5.
    """

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        """Create the model with its initial weights.

        Args:
            config: a resolved config.
            key: randomness of the initial weights.
        """
        configs = split_stages(config)
        *stage_keys, out_key = jax.random.split(key, len(configs) + 1)
        self.data, self.dtype = config.data, jnp.dtype(config.model.dtype)
        self.image_shape, self.pooling = config.data.image_shape, config.model.pooling
        self.placement = config.normalization.placement
        self.stages = nnx.List(
            [
                Stage(stage, is_last=index == len(configs) - 1, stochastic_depth=rates, key=stage_key)
                for index, (stage, rates, stage_key) in enumerate(
                    zip(configs, _share_depth(configs), stage_keys, strict=True)
                )
            ]
        )
        rngs = nnx.Rngs(params=out_key)
        self.normalization = build_normalization(configs[-1], rngs)
        self.read_out = build_read_out(configs[-1], rngs)

    @property
    def evolutions(self) -> tuple[Evolution, ...]:
        """The depth of each stage."""
        return tuple(stage.evolution for stage in self.stages)

    def enter(self, stage: int, x: Array) -> Tokens:
        """Return the state at the start of a stage `[batch, tokens, width]`, on the constraint set if there is one.

        Args:
            stage: its number, from 0.
            x: raw pixels `[batch, height, width, channels]` for the first stage, else the final state of the stage
                before, `[batch, tokens, width]`.
        """
        part = self.stages[stage]
        if stage == 0:
            mesh = normalize_pixels(x, self.data, self.dtype)
        else:
            before = self.stages[stage - 1]
            tokens = self._leave_frame(stage - 1, x)
            mesh = tokens.reshape(tokens.shape[0], *before.grid, tokens.shape[-1])
        return self.enter_set(part.normalization or self.normalization, part.embed(mesh))

    def classify(self, u: Tokens) -> Logits:
        """Return the logits `[batch, classes]` of a final state.

        Args:
            u: state at the end of the last stage `[batch, tokens, width]`.
        """
        u = self._leave_frame(len(self.stages) - 1, u)
        if self.placement == "pre":
            u = self.normalization.project(0.0, u)
        return lift_precision(self.read_out(self.pool(u)))

    def _leave_frame(self, stage: int, u: Tokens) -> Tokens:
        """With the placement `tangent`, the state of a stage lives in a moving frame."""
        return (self.stages[stage].normalization or self.normalization).leave_frame(u) if self._has_frame else u

    @property
    def _has_frame(self) -> bool:
        return self.placement == "tangent"


def _share_depth(configs: Sequence[Config]) -> list[tuple[float, float]]:
    """Return the probabilities of leaving out an operator at the two ends of each stage, linear in time over all."""
    times = [0.0, *itertools.accumulate(config.splitting.horizon or 0.0 for config in configs)]
    rates = [configs[0].model.stochastic_depth * time / times[-1] for time in times]
    return list(itertools.pairwise(rates))
