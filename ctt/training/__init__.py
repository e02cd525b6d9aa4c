"""The training engine: state, step (pure), loop (host), evaluation, checkpoints, run directories.

* `loss`, `optimizer`: the terminal cost; the update rules, their schedules, and what of them knows the depth.
* `state`, `step`: what changes, and one pure update of it.
* `accumulate`, `weights`: the gradient of a batch in parts; the weights that are measured, and their average.
* `loop`: from data to summary, on the host.
* `evaluate`: loss and accuracy on a split, with the steps of training or with adaptive ones.
* `certificate`, `meter`: the measured order of a run's discretisation, and its splitting error while it learns.
* `checkpoint`, `digest`: saved states, verified when read.
* `directory`, `manifest`: the files of a run directory; `run`: a trained run, loaded.
* `interruption`, `progress`: signals, and what a person sees; `telemetry`: what is measured, and where it goes.
* `compilation`: compiled programs are kept on disk.
"""
