"""The layers of known architectures in plain numpy, written from the papers and sharing nothing with the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.special import erf

Weights: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class PlainLayer:
    """One encoder layer.

    Attributes:
        attention: weights of ``query``, ``key``, ``value``, ``output``, each with ``kernel`` and ``bias``.
        feedforward: a chain of linear maps, the activation between them.
        attention_norm: ``scale`` and ``bias`` of the attention's layer normalisation; None: no affine map.
        feedforward_norm: the same of the feed-forward network's.
        num_heads: number of heads.
        activation: ``relu`` or ``gelu``.
        eps: added to the variance.
    """

    attention: Weights
    feedforward: Sequence[Weights]
    attention_norm: Weights | None
    feedforward_norm: Weights | None
    num_heads: int
    activation: str
    eps: float

    def normalize(self, u: np.ndarray, norm: Weights | None) -> np.ndarray:
        """Return the layer normalisation of Ba et al. (2016)."""
        centred = u - u.mean(-1, keepdims=True)
        v = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.eps)
        return v if norm is None else v * norm["scale"] + norm["bias"]

    def attend(self, u: np.ndarray) -> np.ndarray:
        """Return multi-head attention, Vaswani et al. (2017), section 3.2.2: head by head."""
        size, total = u.shape[-1] // self.num_heads, 0.0
        query, key, value = (_linear(u, self.attention[name]) for name in ("query", "key", "value"))
        for head in range(self.num_heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[..., part] @ np.swapaxes(key[..., part], -1, -2) / np.sqrt(size)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            total = total + (weights @ value[..., part]) @ self.attention["output"]["kernel"][part]
        return total + self.attention["output"]["bias"]

    def feed_forward(self, u: np.ndarray) -> np.ndarray:
        """Return the feed-forward network, Vaswani et al. (2017), section 3.3."""
        *first, last = self.feedforward
        for weights in first:
            u = _activate(_linear(u, weights), self.activation)
        return _linear(u, last)

    def post_norm(self, u: np.ndarray) -> np.ndarray:
        """Return the layer of Vaswani et al. (2017)."""
        u = self.normalize(u + self.attend(u), self.attention_norm)
        return self.normalize(u + self.feed_forward(u), self.feedforward_norm)

    def pre_norm(self, u: np.ndarray) -> np.ndarray:
        """Return the pre-norm layer of ViT, arXiv:2010.11929, equations (2) and (3)."""
        u = u + self.attend(self.normalize(u, self.attention_norm))
        return u + self.feed_forward(self.normalize(u, self.feedforward_norm))

    def summed(self, u: np.ndarray) -> np.ndarray:
        """Return the layer with parallel attention and feed-forward, arXiv:2302.05442, equation (1)."""
        attention = self.attend(self.normalize(u, self.attention_norm))
        return u + attention + self.feed_forward(self.normalize(u, self.feedforward_norm))

    def macaron(self, u: np.ndarray) -> np.ndarray:
        """Return the Macaron layer, arXiv:1906.02762, figure 2, with tied halves, pre-norm."""
        u = u + self.feed_forward(self.normalize(u, self.feedforward_norm)) / 2
        u = u + self.attend(self.normalize(u, self.attention_norm))
        return u + self.feed_forward(self.normalize(u, self.feedforward_norm)) / 2


def _linear(u: np.ndarray, weights: Weights) -> np.ndarray:
    return u @ weights["kernel"] + weights["bias"]


def _activate(u: np.ndarray, activation: str) -> np.ndarray:
    return np.maximum(u, 0) if activation == "relu" else u * (1 + erf(u / np.sqrt(2))) / 2
