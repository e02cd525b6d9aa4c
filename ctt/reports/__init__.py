"""What a config costs, and what a run was like.

* `footprint`: parameters, substeps, FLOPs and memory of a config, without running it.
* `batch`: images of a training batch, before and after augmentation.
* `curves`: learning curves, and the splitting error along the depth.
* `report`: all figures of a run and one page, in HTML by `page`; `style`: the look of all figures.
"""

from ctt.reports.batch import draw_batch, plot_batch
from ctt.reports.curves import plot_curves, plot_splitting
from ctt.reports.footprint import count_flops, measure_footprint
from ctt.reports.report import write_report

__all__ = [
    "count_flops",
    "draw_batch",
    "measure_footprint",
    "plot_batch",
    "plot_curves",
    "plot_splitting",
    "write_report",
]
