import numpy as np
import pytest

from ctt.data import Split
from ctt.data.holdout import hold_out
from ctt.data.mapped import MappedImages

PIXELS = np.random.default_rng(0).integers(0, 256, (10, 4, 3, 2), dtype=np.uint8)


@pytest.fixture
def mapped(tmp_path):
    """The pixels in a file."""
    np.save(tmp_path / "images.npy", PIXELS)
    return MappedImages(np.load(tmp_path / "images.npy", mmap_mode="r"))


KEYS = [3, -1, np.int64(2), slice(2, 7), slice(None, None, -2), [4, 0, 4], np.array([9, 1]), np.arange(10) % 3 == 0]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("rest", [(), (0,), (slice(1, 3), 0), (slice(None), slice(None), 1)])
@pytest.mark.parametrize("rows", [None, [7, 3, 3, 9, 0, 1, 2, 8, 5, 6]])
def test_an_index_reads_what_it_would_of_an_array(mapped, key, rest, rows):
    images, expected = (mapped, PIXELS) if rows is None else (mapped.select(np.array(rows)), PIXELS[rows])
    part = images[(key, *rest)] if rest else images[key]
    np.testing.assert_array_equal(part, expected[key][rest if np.ndim(expected[key]) == 3 else (slice(None), *rest)])
    assert type(part) in (np.ndarray, np.uint8)
    assert isinstance(part, np.uint8) or part.flags.owndata or part.base.flags.owndata


def test_it_looks_like_an_array(mapped):
    images = mapped.select(np.array([5, 2, 2]))
    assert (images.shape, images.ndim, images.dtype, len(images)) == ((3, 4, 3, 2), 4, np.uint8, 3)
    assert images.nbytes == PIXELS[:3].nbytes
    np.testing.assert_array_equal(images, PIXELS[[5, 2, 2]])
    np.testing.assert_array_equal(np.concatenate([images, images]), PIXELS[[5, 2, 2, 5, 2, 2]])
    np.testing.assert_array_equal(list(images), PIXELS[[5, 2, 2]])
    assert np.asarray(images, dtype=np.float32).dtype == np.float32


def test_selections_are_composed(mapped):
    images = mapped.select(np.array([8, 6, 4, 2])).select(np.array([3, 1]))
    np.testing.assert_array_equal(images, PIXELS[[2, 6]])


@pytest.mark.parametrize("key", [(np.array([0, 1]), np.array([0, 1])), (..., 0)])
def test_an_index_that_would_mean_something_else_is_refused(mapped, key):
    with pytest.raises(TypeError, match="integers and slices"):
        mapped[key]


def test_a_row_that_is_not_there_is_an_index_error(mapped):
    with pytest.raises(IndexError):
        mapped.select(np.array([10]))
    with pytest.raises(IndexError):
        mapped[10]


def test_a_split_in_memory_is_the_same(mapped):
    split = Split(mapped, np.arange(10, dtype=np.int32)).select(np.array([4, 1]))
    loaded = split.in_memory()
    assert type(loaded.images) is np.ndarray
    np.testing.assert_array_equal(loaded.images, PIXELS[[4, 1]])
    np.testing.assert_array_equal(loaded.labels, [4, 1])
    assert loaded.in_memory() is loaded


def test_holding_out_reads_nothing(tmp_path):
    """The file claims 256 GiB, more than the memory of most machines; on disk it is a hole."""
    path, shape = tmp_path / "images.npy", (2**20, 256, 256, 4)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        try:
            file.truncate(file.tell() + int(np.prod(shape)))
        except OSError:
            pytest.skip("the file system has no such large files")
    split = Split(MappedImages(np.load(path, mmap_mode="r")), np.arange(2**20, dtype=np.int32) % 10)
    kept, held = hold_out(split.labels, 1000, seed=0)
    train, val = split.select(kept), split.select(held)
    assert (train.images.shape[0], val.images.shape[0]) == (2**20 - 1000, 1000)
    assert train.images.nbytes == len(kept) * 2**18
    assert not val.select(np.arange(5)).in_memory().images.any()
