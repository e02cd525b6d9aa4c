"""Time: schemes as data, substeps, the loop over steps, and measured orders.

* `scheme`: a scheme is a weighted sum of words; a new one is a line in a table.
* `condition`: the order of words, computed from them; `notation`: words as text.
* `substep`: methods for the flow of one letter.
* `compatibility`: what a scheme asks of its operators.
* `step`: one step of a scheme, each operator on its own clock.
* `rollout`: the loop over steps, pure.
* `integrate`: the same for anybody's ``f(t, u)``.
* `solver`: the same as a diffrax solver, with adaptive steps and dense output.
* `order`: errors against a reference, and their slope.
* `meter`: the local splitting error of a step.
"""

from ctt.splitting.compatibility import check_operators
from ctt.splitting.condition import algebraic_order
from ctt.splitting.integrate import integrate
from ctt.splitting.meter import commutator, lipschitz, measure_step
from ctt.splitting.notation import parse_scheme
from ctt.splitting.order import Convergence, measure_convergence, observed_order
from ctt.splitting.rollout import Rollout, rollout, trajectory
from ctt.splitting.scheme import SCHEMES, Letter, Scheme, Word, build_scheme, single_word
from ctt.splitting.solver import SplittingSolver, build_solver
from ctt.splitting.step import split_step
from ctt.splitting.substep import SUBSTEPS, Substep, build_substep, build_substeps

__all__ = [
    "SCHEMES",
    "SUBSTEPS",
    "Convergence",
    "Letter",
    "Rollout",
    "Scheme",
    "SplittingSolver",
    "Substep",
    "Word",
    "algebraic_order",
    "build_scheme",
    "build_solver",
    "build_substep",
    "build_substeps",
    "check_operators",
    "commutator",
    "integrate",
    "lipschitz",
    "measure_convergence",
    "measure_step",
    "observed_order",
    "parse_scheme",
    "rollout",
    "single_word",
    "split_step",
    "trajectory",
]
