"""Learnable weights as functions of time, ``theta(t) = sum_k phi_k(t) theta_k``.

* `basis`: the functions ``phi_k`` and how their coefficients reach the loop over steps.
* `stack`: the coefficients of all operators, stacked along axis 0.
"""

from ctt.controls.basis import BASES, Basis, PiecewiseConstant, evaluate_controls
from ctt.controls.stack import Controls

__all__ = ["BASES", "Basis", "Controls", "PiecewiseConstant", "evaluate_controls"]
