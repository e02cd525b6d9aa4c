"""The machines that share a run.

* `mesh`: which devices, in which arrangement, and what each array leaves on them.
* `processes`: finding the other processes, agreeing with them, and parting.
"""

from ctt.training.devices.mesh import Layout, build_layout
from ctt.training.devices.processes import (
    agree,
    is_leader,
    join_processes,
    part_in_time,
    require_same,
    wait_for_all,
)

__all__ = [
    "Layout",
    "agree",
    "build_layout",
    "is_leader",
    "join_processes",
    "part_in_time",
    "require_same",
    "wait_for_all",
]
