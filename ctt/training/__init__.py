"""The training engine: state, update (pure), loop (host), evaluation, checkpoints, run directories.

The update, and what it is made of:

* `state`, `step`: what changes, and one pure update of it.
* `loss`, `optimizer`: the terminal cost; the update rules, their schedules, and what of them knows the depth.
* `accumulate`: the gradient of a batch in parts.
* `weights`: the weights that are measured, and their moving average.

The loop on the host:

* `loop`: from data to summary; `milestone`: when it logs, evaluates and saves, and when it ends; `clock`: its seconds.
* `feed`, `dispatch`: batches on their way to the device; several updates a dispatch.
* `devices`: the mesh of devices and the processes that share a run.
* `loading`: the data, with progress; `progress`: what a person sees; `interruption`: Ctrl-C and SIGTERM.
* `telemetry`: what is measured of a run, and where it goes.
* `compilation`: compiled programs are kept on disk.

What a state is worth:

* `examination`: what the loop asks of a state; `evaluate`: loss and accuracy on a split, with the steps of training or
  with adaptive ones; `evaluation`: the full measures of `ctt eval`.
* `certificate`, `meter`: the measured order of a run's discretisation, and its splitting error while it learns.

What is left on disk, and going on from it:

* `place`, `opening`, `resume`: which folder a run has, how a session of it begins, and what may change when it goes on.
* `directory`, `manifest`: the files of a run directory, and where and with what it was made.
* `checkpoint`, `digest`: saved states, verified when read.
* `run`, `adopt`: a trained run, loaded; one that was not trained here.
* `repeat`, `group`: a run repeated with several seeds, and its folder.
"""
