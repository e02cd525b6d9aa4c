"""The table of orders of MATH.md section 5: schemes with their substeps, by placement of the normalisation."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ctt.certificates.check import Check, exact_arithmetic
from ctt.certificates.order import TOLERANCE, Observation, observe, randomize
from ctt.controls.basis import Basis
from ctt.controls.stack import Controls
from ctt.controls.timeline import operators_in_time
from ctt.dynamics.attention import SelfAttention
from ctt.dynamics.feedforward import FeedForward
from ctt.dynamics.normalization import Normalization, retract
from ctt.dynamics.operator import Operator
from ctt.dynamics.placement import PLACEMENTS
from ctt.splitting.integrate import build_marcher
from ctt.splitting.order import build_grid_solver, quick_options, solve_unsplit
from ctt.typing import Array, Float, State, Time

ORDERS: dict[tuple[str, str], dict[str, float]] = {
    ("lie", "euler"): {"pre": 1, "post": 1, "tangent": 1},
    ("lie", "midpoint"): {"pre": 1, "post": 1, "tangent": 1},
    ("strang", "euler"): {"pre": 1, "post": 1, "tangent": 1},
    ("strang", "midpoint"): {"pre": 2, "post": 1, "tangent": 2},
    ("strang_staggered", "midpoint"): {"pre": 2, "post": 1, "tangent": 2},
    ("swss", "midpoint"): {"pre": 2, "post": 1, "tangent": 2},
    ("parallel", "midpoint"): {"pre": 2, "post": 1, "tangent": 2},
    ("yoshida4", "rk4"): {"pre": 4, "post": 1, "tangent": 4},
}
"""Orders by scheme and substep, and by placement."""

_WIDTH, _TOKENS, _HORIZON = 8, 5, 1.0
_GRIDS = (8, 16, 32, 64, 128, 256, 512)


class _Smooth(Basis):
    """``1, sin 3t, cos 2t``: controls without knots."""

    def weights(self, t: Time) -> Float[Array, " 3"]:
        return jnp.stack([jnp.ones_like(t), jnp.sin(3 * t), jnp.cos(2 * t)])

    def steps_per_slice(self, steps: int) -> int:
        return 1


def check_table() -> Iterator[Check]:
    """Measure the orders of the table, one check a cell, in float64.

    Attention and a GELU feed-forward network with smooth controls, frozen at the middle of each letter; the
    fixed set S1(0, 1) with eps = 0; horizon 1. The reference is the unsplit equation, on the tangent space of
    the set for `post` and `tangent`, by diffrax's Dopri8.
    """
    with exact_arithmetic():
        u0 = jnp.asarray(np.random.default_rng(1).standard_normal((_TOKENS, _WIDTH)))
        on_set = retract(u0, 0.0)
        starts = {"pre": u0, "post": on_set, "tangent": on_set}
        fields = {placement: _operators(placement) for placement in PLACEMENTS}
        references = {
            "pre": solve_unsplit(fields["pre"], u0, _HORIZON),
            "tangent": solve_unsplit(fields["tangent"], on_set, _HORIZON),
        }
        references["post"] = references["tangent"]
    for (scheme, substep), orders in ORDERS.items():
        for placement, promised in orders.items():
            with exact_arithmetic():
                observed = _measure(scheme, substep, fields[placement], starts[placement], references[placement])
            yield _describe(scheme, substep, placement, promised, observed)


def _operators(placement: str) -> list[Operator]:
    dtype, place = jnp.dtype("float64"), PLACEMENTS[placement]

    def build(rngs: nnx.Rngs) -> dict[str, Operator]:
        norm = Normalization(_WIDTH, affine="none", eps=0.0, param_dtype=dtype, rngs=rngs)
        biases = ("query", "key", "value", "output")
        attention = SelfAttention(_WIDTH, 2, biases=biases, dtype=dtype, param_dtype=dtype, rngs=rngs)
        feedforward = FeedForward(
            _WIDTH, 2 * _WIDTH, activation="gelu", use_bias=True, dtype=dtype, param_dtype=dtype, rngs=rngs
        )
        return {"attention": place(attention, norm), "feedforward": place(feedforward, norm)}

    controls = Controls(build, _Smooth(3, _HORIZON), key=jax.random.key(0))
    return list(operators_in_time(randomize(controls, seed=2)))


def _measure(scheme: str, substep: str, fields: list[Operator], u0: State, reference: State) -> Observation:
    marcher = build_marcher(fields, scheme=scheme, substep=substep, sampling="midpoint", allow_reduced_order=True)
    return observe(build_grid_solver(marcher, _HORIZON, compiler_options=quick_options()), u0, reference, _GRIDS)


def _describe(scheme: str, substep: str, placement: str, promised: float, observed: Observation) -> Check:
    outcome = observed.judge(promised)
    if outcome == "holds" and observed.pairwise[-1] > promised + TOLERANCE:
        outcome = "not resolved"  # The table states orders, not lower bounds.
    reason = ""
    if placement == "post" and promised == 1 and scheme != "lie" and substep != "euler":
        reason = "a projection bolted on after each substep caps every scheme at order 1"
    elif substep == "euler":
        reason = "an Euler substep makes every scheme first order"
    values = {
        "scheme": scheme,
        "substep": substep,
        "placement": placement,
        "promised": promised,
        "steps": list(observed.steps),
        "errors": list(observed.errors),
        "slopes": list(observed.pairwise),
        "fitted": observed.fitted,
    }
    summary = f"observed {observed.pairwise[-1]:.2f}, promised {promised:g}"
    return Check(f"order of {scheme} + {substep}, {placement}", outcome, summary, reason, values)
