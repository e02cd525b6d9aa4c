"""A network on another grid in time: adaptive steps, dense output, and the splitting error along its depth."""

import diffrax
import jax
import jax.numpy as jnp

from ctt.config.error import InputError
from ctt.controls.timeline import operators_in_time
from ctt.models.evolution import Evolution
from ctt.splitting.meter import measure_step
from ctt.splitting.scheme import Scheme
from ctt.splitting.solver import build_solver
from ctt.typing import Array, Tokens


def solve_evolution(
    evolution: Evolution,
    u0: Tokens,
    *,
    rtol: float = 1e-3,
    atol: float = 1e-6,
    max_steps: int = 4096,
    dense: bool = False,
) -> diffrax.Solution:
    """Integrate the equation of a network by its own scheme, with steps that adapt to the splitting error.

    Steps are clipped at the knots of the controls, which are constant between them. All of `u0` shares its steps:
    `jax.vmap` gives each example its own.

    Args:
        evolution: the depth of a network.
        u0: initial state `[..., tokens, width]`.
        rtol: relative tolerance of the local error, > 0.
        atol: absolute tolerance of the local error, >= 0.
        max_steps: at most so many steps; where they do not suffice, ``solution.result`` says so.
        dense: keep the whole trajectory: ``solution.evaluate(t)`` is then the state at any time.

    Returns:
        The solution; ``solution.ys[-1]`` is the state at the horizon, ``solution.stats`` counts the steps.

    Raises:
        InputError: the network is the literal layer, which has no steps to adapt.
    """
    scheme = _require_scheme(evolution, "Adaptive steps")
    basis = evolution.controls.basis
    terms, solver = build_solver(
        operators_in_time(evolution.controls),
        scheme=scheme,
        substep=[method.name for method in evolution.substeps],
        sampling="step",
        allow_reduced_order=True,  # The network was asked when it was built.
    )
    controller = diffrax.PIDController(rtol=rtol, atol=atol)
    pieces = basis.num_coefficients * (2 if evolution.controls.nodal else 1)
    if pieces > 1:
        jumps = basis.horizon * jnp.arange(1, pieces) / pieces
        controller = diffrax.ClipStepSizeController(controller, jump_ts=jumps)
    return diffrax.diffeqsolve(
        terms,
        solver,
        t0=0.0,
        t1=basis.horizon,
        dt0=evolution.dt,
        y0=u0,
        stepsize_controller=controller,
        saveat=diffrax.SaveAt(t1=True, dense=dense),
        max_steps=max_steps,
        throw=False,
    )


def measure_splitting(evolution: Evolution, u0: Tokens) -> dict[str, Array]:
    """Return the local splitting error of every step of a network, see `ctt.splitting.meter.measure_step`.

    Args:
        evolution: the depth of a network.
        u0: initial state `[batch, tokens, width]`.

    Returns:
        By name, an array `[steps]`.

    Raises:
        InputError: the network is the literal layer, which splits nothing.
    """
    _require_scheme(evolution, "A splitting error")
    operators = operators_in_time(evolution.controls)
    # Nodal controls are those of the node at either end of the step, which the halves of Strang's word ask for.
    sampling = "midpoint" if evolution.is_merged else "step"
    states = evolution.trajectory(u0)[:-1]

    def measure(step: tuple[Array, Tokens]) -> dict[str, Array]:
        n, u = step
        return measure_step(
            evolution.substeps,
            operators=operators,
            names=evolution.controls.names,
            u=u,
            t=n * evolution.dt,
            dt=evolution.dt,
            sampling=sampling,
        )

    return jax.lax.map(measure, (jnp.arange(evolution.steps), states))


def _require_scheme(evolution: Evolution, purpose: str) -> Scheme:
    if evolution.scheme is None:
        raise InputError(
            f"{purpose} cannot be had from the literal scheme, which is a layer at step 1 and no splitting of an "
            "equation. Choose --splitting.scheme lie."
        )
    return evolution.scheme
