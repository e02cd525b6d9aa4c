"""Time: schemes as data, substeps, the loop over steps, and measured orders.

* `scheme`: a scheme is a weighted sum of words; a new one is a line in a table.
* `substep`: methods for the flow of one letter.
* `step`: one step of a scheme, each operator on its own clock.
* `rollout`: the loop over steps, pure.
* `integrate`: the same for anybody's ``f(t, u)``.
* `order`: errors against a reference, and their slope.
"""

from ctt.splitting.integrate import integrate
from ctt.splitting.order import Convergence, measure_convergence, observed_order
from ctt.splitting.rollout import Rollout, rollout, trajectory
from ctt.splitting.scheme import SCHEMES, Letter, Scheme, Word, build_scheme, single_word
from ctt.splitting.step import split_step
from ctt.splitting.substep import SUBSTEPS, Substep, build_substep

__all__ = [
    "SCHEMES",
    "SUBSTEPS",
    "Convergence",
    "Letter",
    "Rollout",
    "Scheme",
    "Substep",
    "Word",
    "build_scheme",
    "build_substep",
    "integrate",
    "measure_convergence",
    "observed_order",
    "rollout",
    "single_word",
    "split_step",
    "trajectory",
]
