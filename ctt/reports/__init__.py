"""What a config costs.

* `footprint`: parameters, substeps, FLOPs and memory of a config, without running it.
"""

from ctt.reports.footprint import count_flops, measure_footprint

__all__ = ["count_flops", "measure_footprint"]
