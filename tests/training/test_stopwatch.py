"""Throughput and idle time: by a clock that the test moves, and against a device that is really kept waiting."""

import threading
import time

import jax
import jax.numpy as jnp
import pytest

from ctt.training.telemetry.stopwatch import Stopwatch


class Device:
    """Results that are there when the test says so."""

    def __init__(self):
        self._is_ready = threading.Event()

    def block_until_ready(self):
        assert self._is_ready.wait(10)
        return self

    def finish(self):
        self._is_ready.set()


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stopwatch(clock):
    watch = Stopwatch(is_inline=False, clock=clock)
    yield watch
    watch.close()


def run_chunk(watch, clock, *, wait=0.0, launch=0.0, compute=0.0, steps=1, images=10):
    """One iteration on a device that begins when the dispatch returns, all of it waited for."""
    with watch.waiting_for_input():
        clock.now += wait
    device = Device()
    with watch.dispatch(num_steps=steps, num_images=images) as launched:
        clock.now += launch
        launched(device)
    clock.now += compute
    device.finish()
    watch._launches.join()


def test_throughput_is_that_of_the_window_and_of_all(stopwatch, clock):
    run_chunk(stopwatch, clock, compute=2.0, steps=4, images=40)
    first = stopwatch.measures()
    run_chunk(stopwatch, clock, compute=1.0, steps=4, images=40)
    second = stopwatch.measures()
    assert (first["images_per_second"], first["step_seconds"]) == (20.0, 0.5)
    assert (second["images_per_second"], second["step_seconds"]) == (40.0, 0.25)
    assert second["mean_images_per_second"] == pytest.approx(80 / 3)


def test_idle_time_is_divided_between_input_and_the_rest(stopwatch, clock):
    for _ in range(2):
        run_chunk(stopwatch, clock, wait=1.0, launch=0.5, compute=2.5)
    values = stopwatch.measures()
    assert values["input_stall"] == pytest.approx(1 / 4)
    assert values["host_overhead"] == pytest.approx(0.5 / 4)


def test_a_wait_while_the_device_works_is_no_stall(stopwatch, clock):
    first, second = Device(), Device()
    with stopwatch.dispatch(num_steps=1, num_images=1) as launched:
        launched(first)
    with stopwatch.waiting_for_input():
        clock.now += 3.0
    with stopwatch.dispatch(num_steps=1, num_images=1) as launched:
        launched(second)
    clock.now += 1.0
    first.finish()
    second.finish()
    values = stopwatch.measures()
    assert (values["input_stall"], values["host_overhead"]) == (0.0, 0.0)


def test_a_wait_counts_from_the_moment_at_which_the_device_is_done(stopwatch, clock):
    first, second = Device(), Device()
    with stopwatch.dispatch(num_steps=1, num_images=1) as launched:
        launched(first)
    with stopwatch.waiting_for_input():
        clock.now += 3.0
        first.finish()
        stopwatch._launches.join()
        clock.now += 1.0
    with stopwatch.dispatch(num_steps=1, num_images=1) as launched:
        launched(second)
    second.finish()
    values = stopwatch.measures()
    assert (values["input_stall"], values["host_overhead"]) == (1 / 4, 0.0)


def test_pauses_and_compilation_are_left_out(stopwatch, clock):
    with stopwatch.compiling():
        clock.now += 60.0
    run_chunk(stopwatch, clock, compute=1.0)
    with stopwatch.pause():
        clock.now += 10.0
        with stopwatch.pause():
            clock.now += 10.0
        clock.now += 10.0
    run_chunk(stopwatch, clock, compute=1.0)
    values = stopwatch.measures()
    assert values["compile_seconds"] == 60.0
    assert values["step_seconds"] == 1.0
    assert values["host_overhead"] == 0.0


def test_a_window_may_end_within_a_pause(stopwatch, clock):
    run_chunk(stopwatch, clock, compute=1.0)
    with stopwatch.pause():
        clock.now += 5.0
        first = stopwatch.measures()
        clock.now += 5.0
    run_chunk(stopwatch, clock, compute=2.0)
    second = stopwatch.measures()
    assert (first["step_seconds"], second["step_seconds"]) == (1.0, 2.0)


def test_a_dispatch_that_computes_before_it_returns_is_not_idle(clock):
    watch = Stopwatch(is_inline=True, clock=clock)
    run_chunk(watch, clock, launch=2.0)
    assert watch.measures()["host_overhead"] == 0.0
    watch.close()


def test_a_computation_that_fails_does_not_end_the_watch(stopwatch, clock):
    class Broken:
        def block_until_ready(self):
            raise RuntimeError("lost the device")

    with stopwatch.dispatch(num_steps=1, num_images=1) as launched:
        launched(Broken())
    run_chunk(stopwatch, clock, compute=1.0)
    assert stopwatch.measures()["step_seconds"] == 0.5


def test_a_real_device_that_is_kept_waiting_is_seen():
    compute = jax.jit(lambda x: jnp.sin(x) @ x)
    x = jnp.ones((64, 64))
    compute(x).block_until_ready()
    watch = Stopwatch()
    for _ in range(5):
        with watch.waiting_for_input():
            time.sleep(0.05)
        with watch.dispatch(num_steps=1, num_images=8) as launched:
            launched(compute(x))
    values = watch.measures()
    watch.close()
    assert 0.5 < values["input_stall"] <= 1.0


def test_closing_ends_the_thread():
    watch = Stopwatch()
    with watch.dispatch(num_steps=1, num_images=1) as launched:
        launched(jnp.zeros(()))
    watch.close()
    assert "ctt-stopwatch" not in {thread.name for thread in threading.enumerate()}
