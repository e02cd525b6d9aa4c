"""What a discretisation promises, and whether it keeps it: measured in float64.

* `check`: one claim, with one of three outcomes.
* `promise`: the order that a config promises, and what limits it.
* `order`: the observed order of a configured model.
* `table`: the table of orders of MATH.md section 5.
* `recovery`: the exact recoveries of known architectures; `plain`: those architectures in plain numpy.
* `constraint`: the projection property, by random search.
* `mesh`: convergence of attention on finer and finer meshes.
"""

from ctt.certificates.check import Check
from ctt.certificates.constraint import check_projections
from ctt.certificates.mesh import check_meshes
from ctt.certificates.order import certify_order
from ctt.certificates.promise import Promise, promise_order
from ctt.certificates.recovery import check_recoveries
from ctt.certificates.table import check_table

__all__ = [
    "Check",
    "Promise",
    "certify_order",
    "check_meshes",
    "check_projections",
    "check_recoveries",
    "check_table",
    "promise_order",
]
