"""`--profile`: a trace of whole steps is on disk, whatever happens to the run."""

import jax
import jax.numpy as jnp
import pytest

from ctt.training.telemetry.memory import measure_memory
from ctt.training.telemetry.profiler import Profiler


@pytest.fixture(scope="module")
def compute():
    return jax.jit(lambda x: jnp.sin(x) @ x)


def traces(folder):
    return list(folder.rglob("*.xplane.pb"))


def steps(profiler, compute, num_steps, each=1):
    x = jnp.ones((16, 16))
    profiler.advance(0)
    for step in range(each, num_steps + 1, each):
        x = compute(x)
        profiler.advance(step, x.block_until_ready)


def test_a_trace_is_written_and_named(compute, tmp_path):
    said = []
    with Profiler(tmp_path / "a run" / "profile", 2, 2, said.append) as profiler:
        steps(profiler, compute, 8)
    (trace,) = traces(tmp_path / "a run" / "profile")
    (line,) = said
    assert line.startswith(f"Trace of steps 3 to 4: {trace.parent}.")
    assert f"tensorboard --logdir '{tmp_path}/a run/profile'" in line
    assert next(trace.parent.glob("*.trace.json.gz")).stat().st_size > 0


def test_a_dispatch_of_several_steps_is_traced_as_a_whole(compute, tmp_path):
    said = []
    with Profiler(tmp_path, 2, 2, said.append) as profiler:
        steps(profiler, compute, 12, each=4)
    assert said[0].startswith("Trace of steps 5 to 8:")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_exception_ends_the_trace(compute, tmp_path, error):
    said = []

    def train():
        with Profiler(tmp_path, 1, 100, said.append) as profiler:
            steps(profiler, compute, 3)
            raise error

    with pytest.raises(error):
        train()
    assert len(traces(tmp_path)) == 1
    assert said[0].startswith("Trace of steps 2 to 3:")
    jax.profiler.start_trace(tmp_path / "next")  # Another can begin.
    jax.profiler.stop_trace()


def test_a_run_that_ends_too_early_is_told(compute, tmp_path):
    said = []
    with Profiler(tmp_path / "profile", 10, 2, said.append) as profiler:
        steps(profiler, compute, 3)
    assert said == ["Warning: nothing was traced, since training ended before step 10."]
    assert not (tmp_path / "profile").exists()


def test_memory_is_that_of_the_process_on_a_cpu():
    before = measure_memory()
    assert list(before) == ["host_memory_bytes"]
    assert 2**24 < before["host_memory_bytes"] < 2**40


def test_memory_is_that_of_the_fullest_device_where_it_is_counted(monkeypatch):
    class Device:
        def __init__(self, stats):
            self.memory_stats = lambda: stats

    devices = [Device({"peak_bytes_in_use": 5, "bytes_in_use": 9}), Device({"peak_bytes_in_use": 7}), Device(None)]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert measure_memory() == {"device_memory_bytes": 7.0}
