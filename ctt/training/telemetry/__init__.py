"""What is measured of a run besides its learning, and where the measures go.

* `sink`: the protocol of a place for measures, several as one, and `open_sinks`, which opens those of a config.
* `metrics_file`, `tensorboard`, `weights_and_biases`: the places; `naming`: names of curves.
* `stopwatch`: throughput, waiting for input, idle time of the device; `memory`: of the device or the process.
* `profiler`: a JAX trace of some steps.
* `view`, `curve`: the live view on a terminal.
"""
