"""Learnable weights as functions of time, ``theta(t) = sum_k phi_k(t) theta_k``.

* `basis`: the functions ``phi_k`` and how their coefficients reach the loop over steps.
* `stack`: the coefficients of all operators, stacked along axis 0.
* `timeline`: the same operators as functions of time, for any grid.
"""

from ctt.controls.basis import BASES, Basis, PiecewiseConstant, evaluate_controls
from ctt.controls.stack import Controls
from ctt.controls.timeline import operators_in_time

__all__ = ["BASES", "Basis", "Controls", "PiecewiseConstant", "evaluate_controls", "operators_in_time"]
