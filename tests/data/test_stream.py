"""Streamed batches are those that are gathered on the device, however they are read."""

import gc
import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctt.config.error import InputError
from ctt.data import Split, Stream, batch_indices
from ctt.data.mapped import MappedImages

NUM_EXAMPLES, BATCH_SIZE = 23, 4  # Five steps an epoch, three examples left out of each.
IMAGES = np.random.default_rng(0).integers(0, 256, (NUM_EXAMPLES, 3, 2, 3), dtype=np.uint8)
SPLIT = Split(IMAGES, np.arange(NUM_EXAMPLES, dtype=np.int32))


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """The same examples in memory, and in a file with others between them."""
    path = tmp_path_factory.mktemp("stream") / "images.npy"
    rows = np.random.default_rng(1).permutation(2 * NUM_EXAMPLES)[:NUM_EXAMPLES]
    stored = np.zeros((2 * NUM_EXAMPLES, *IMAGES.shape[1:]), np.uint8)
    stored[rows] = IMAGES
    np.save(path, stored)
    return {"memory": SPLIT, "file": Split(MappedImages(np.load(path, mmap_mode="r"), rows), SPLIT.labels)}


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every test closes its streams, and that ends their threads."""
    yield
    assert_threads_end()


def gathered(seed, step):
    """Return the batch as resident images give it."""
    indices = batch_indices(seed, step, num_examples=NUM_EXAMPLES, batch_size=BATCH_SIZE)
    return IMAGES[indices], SPLIT.labels[indices]


def stream(split=SPLIT, *, seed=0, steps=range(40), **options):
    return Stream(split, seed=seed, batch_size=BATCH_SIZE, steps=steps, **options)


def assert_is_step(batch, seed, step):
    images, labels = gathered(seed, step)
    np.testing.assert_array_equal(batch.images, images)
    np.testing.assert_array_equal(batch.labels, labels)
    assert (batch.images.dtype, batch.labels.dtype) == (np.uint8, np.int32)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("grain")]


def assert_threads_end():
    gc.collect()  # What a failed test still holds.
    deadline = time.monotonic() + 10
    while threads() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not threads()


@given(
    kind=st.sampled_from(["memory", "file"]),
    seed=st.integers(0, 2**32 - 1),
    first=st.integers(0, 12),
    chunks=st.lists(st.integers(0, 6), max_size=5),
    num_threads=st.integers(1, 5),
    num_ahead=st.integers(0, 9),
    num_hosts=st.sampled_from([1, 2, 4]),
)
def test_a_stream_is_the_resident_batches(splits, kind, seed, first, chunks, num_threads, num_ahead, num_hosts):
    """Chunk 0 is a single batch without an axis of steps."""
    steps = range(first, first + sum(max(chunk, 1) for chunk in chunks))
    options = {"num_threads": num_threads, "num_ahead": num_ahead, "num_hosts": num_hosts}
    hosts = [stream(splits[kind], seed=seed, steps=steps, host_index=host, **options) for host in range(num_hosts)]
    step = first
    for chunk in chunks:
        parts = [next(host) if chunk == 0 else host.take(chunk) for host in hosts]
        images, labels = (np.concatenate(part, axis=min(chunk, 1)) for part in zip(*parts, strict=True))
        for offset in range(max(chunk, 1)):
            expected_images, expected_labels = gathered(seed, step)
            np.testing.assert_array_equal(images[offset] if chunk else images, expected_images)
            np.testing.assert_array_equal(labels[offset] if chunk else labels, expected_labels)
            step += 1
        assert {host.step for host in hosts} == {step}
    for host in hosts:
        assert next(host, None) is None
        host.close()


@pytest.mark.parametrize("first", [0, 1, 4, 5, 17, 39, 40])
def test_a_stream_that_begins_later_is_the_tail(first):
    with stream() as whole, stream(steps=range(first, 40)) as tail:
        for batch, expected in zip(tail, itertools.islice(whole, first, None), strict=True):
            np.testing.assert_array_equal(batch.images, expected.images)
            np.testing.assert_array_equal(batch.labels, expected.labels)
        assert tail.step == 40


@pytest.mark.parametrize("num_hosts", [1, 2, 4])
@pytest.mark.parametrize("stopped_at", [1, 5, 18])
def test_what_was_read_ahead_is_not_lost_on_resume(stopped_at, num_hosts):
    """A position that counts what was read ahead, or kept by a host, would skip batches or repeat them."""
    with stream(num_ahead=16) as before:
        before.take(stopped_at)
        time.sleep(0.02)  # The threads are further by now.
        position = before.step
    assert position == stopped_at
    hosts = [
        stream(steps=range(position, 40), num_hosts=num_hosts, host_index=host, num_ahead=3)
        for host in range(num_hosts)
    ]
    for step in range(position, 40):
        labels = np.concatenate([next(host).labels for host in hosts])
        np.testing.assert_array_equal(labels, gathered(0, step)[1])
    for host in hosts:
        host.close()


def test_a_resume_gives_no_batch_of_an_epoch_twice():
    with stream(steps=range(3)) as first, stream(steps=range(3, 5)) as second:
        seen = np.concatenate([*[batch.labels for batch in first], *[batch.labels for batch in second]])
    assert len(set(seen.tolist())) == len(seen) == 20


def test_a_host_reads_its_own_slots_alone():
    read = []

    class Watched:
        def __getitem__(self, indices):
            read.append(indices.tolist())
            return IMAGES[indices]

    with stream(Split(Watched(), SPLIT.labels), steps=range(3), num_hosts=2, host_index=1, num_ahead=0) as half:
        for _ in half:
            pass
    assert read == [gathered(0, step)[1][2:].tolist() for step in range(3)]


class SlowImages:
    """Images of which each batch takes a while, with the number of batches begun so far."""

    def __init__(self, seconds):
        self.seconds, self.num_read = seconds, 0

    def __getitem__(self, indices):
        self.num_read += 1
        time.sleep(self.seconds)
        return IMAGES[indices]


@pytest.mark.parametrize("num_ahead", [1, 3, 8])
def test_no_more_is_read_ahead_than_asked(num_ahead):
    images = SlowImages(0)
    with stream(Split(images, SPLIT.labels), num_ahead=num_ahead) as batches:
        assert images.num_read == 0
        batches.take(5)
        deadline = time.monotonic() + 10
        while images.num_read < 5 + num_ahead and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.05)
        assert images.num_read == 5 + num_ahead


def test_without_reading_ahead_there_is_no_thread():
    with stream(num_ahead=0) as batches:
        assert_is_step(next(batches), 0, 0)
        assert not threads()


def test_what_was_read_in_the_meantime_is_not_waited_for():
    with stream(Split(SlowImages(0.2), SPLIT.labels), num_ahead=4, num_threads=4) as batches:
        next(batches)
        time.sleep(0.6)
        begin = time.monotonic()
        batches.take(4)
        assert time.monotonic() - begin < 0.2


@pytest.mark.parametrize("num_taken", [0, 1, 7, 40])
def test_closing_ends_the_threads(num_taken):
    batches = stream(Split(SlowImages(0.001), SPLIT.labels))
    if num_taken:
        batches.take(num_taken)
    batches.close()
    batches.close()
    assert_threads_end()
    with pytest.raises(ValueError, match="closed"):
        next(batches)
    with pytest.raises(ValueError, match="closed"):
        batches.take(1)


def test_a_forgotten_stream_leaves_no_thread():
    batches = stream()
    next(batches)
    assert threads()
    del batches
    assert_threads_end()


class BrokenImages:
    """Images of a disk that fails at one batch."""

    def __init__(self, step):
        self.broken = gathered(0, step)[1].tolist()

    def __getitem__(self, indices):
        if indices.tolist() == self.broken:
            raise OSError("Input/output error")
        return IMAGES[indices]


@pytest.mark.parametrize("num_ahead", [0, 1, 8])
def test_an_error_of_a_thread_is_raised_at_its_step_and_for_good(num_ahead):
    batches = stream(Split(BrokenImages(3), SPLIT.labels), num_ahead=num_ahead)
    for step in range(3):
        assert_is_step(next(batches), 0, step)
    with pytest.raises(OSError, match="Input/output error"):
        next(batches)
    assert batches.step == 3
    for ask in (lambda: next(batches), lambda: batches.take(1)):
        with pytest.raises(ValueError, match="failed at step 3") as caught:
            ask()
        assert isinstance(caught.value.__cause__, OSError)
    assert_threads_end()


def test_an_error_within_a_chunk_is_raised():
    with (
        stream(Split(BrokenImages(3), SPLIT.labels)) as batches,
        pytest.raises(OSError, match="Input/output error"),
    ):
        batches.take(10)
    assert_threads_end()


@pytest.mark.parametrize("num_steps", [-1, 0, 4])
def test_a_chunk_that_is_not_there_is_refused_and_nothing_is_lost(num_steps):
    with stream(steps=range(37, 40)) as batches:
        with pytest.raises(ValueError, match=f"3 steps left in the stream, not {num_steps}"):
            batches.take(num_steps)
        assert batches.take(3).labels.shape == (3, BATCH_SIZE)


def test_no_steps_are_no_batches():
    with stream(steps=range(7, 3)) as batches:
        assert list(batches) == []


@pytest.mark.parametrize("num_hosts", [3, 8])
def test_a_batch_that_hosts_cannot_share_is_refused(num_hosts):
    with pytest.raises(
        InputError, match=rf"`training.batch_size` must be a multiple of {num_hosts}, .* got 4\. .*pass"
    ):
        stream(num_hosts=num_hosts)


def test_a_batch_larger_than_the_split_is_refused():
    with pytest.raises(InputError, match=r"`training.batch_size` must be >= 1 and <= 23"):
        Stream(SPLIT, seed=0, batch_size=24, steps=range(2))


@pytest.mark.parametrize(
    "options",
    [{"num_hosts": 2, "host_index": 2}, {"host_index": -1}, {"steps": range(0, 4, 2)}, {"steps": range(-1, 4)}],
)
def test_a_host_or_step_that_is_not_there_is_a_mistake(options):
    with pytest.raises(ValueError, match=r"no (host|steps)"):
        stream(**options)
