import functools
import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.config import AugmentationConfig
from ctt.data import augment

# Every pixel is different and none is zero, so that a translate is recognised and told from padding.
IMAGES = (1 + np.arange(4 * 6 * 5 * 1).reshape(4, 6, 5, 1)).astype(np.uint8)
KEYS = jax.random.split(jax.random.key(0), 4)
LABELS = np.arange(4, dtype=np.int32)
COLORS = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
FILL = (0.2, 0.4, 0.6)
EVERYTHING = {
    "crop_padding": 2,
    "flip": True,
    "randaugment": 2,
    "color_jitter": 0.4,
    "erasing": 0.5,
    "mixup": 0.8,
    "cutmix": 1.0,
    "mix_probability": 0.5,
}
ALONE = {**EVERYTHING, "mixup": 0.0, "cutmix": 0.0}


IN_A_HURRY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@functools.cache
def compiled(num_classes, channels, **options):
    """Compiled badly, and so in a hurry: the bits are the same, as a test holds."""
    function = functools.partial(
        augment, config=AugmentationConfig(**options), num_classes=num_classes, fill=FILL[:channels]
    )
    return jax.jit(function, compiler_options=IN_A_HURRY if jax.default_backend() == "cpu" else {})


def augmented(keys, images, labels=LABELS, num_classes=10, **options):
    return compiled(num_classes, images.shape[-1], **options)(keys, images, labels)


def augment_many(image, *, draws=64, **options):
    keys = jax.random.split(jax.random.key(1), draws)
    images, labels = np.repeat(image[None], draws, axis=0), np.zeros(draws, np.int32)
    return np.asarray(augmented(keys, images, labels, **options).images)


def list_translates(image, padding):
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    height, width, _ = image.shape
    offsets = range(2 * padding + 1)
    return {padded[row : row + height, column : column + width].tobytes() for row in offsets for column in offsets}


@pytest.mark.parametrize("crop_padding", [0, 2])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_and_dtype_are_kept(crop_padding, flip, channels):
    images = np.repeat(IMAGES, channels, axis=-1)
    result = augmented(KEYS, images, crop_padding=crop_padding, flip=flip)
    assert result.images.shape == images.shape
    assert result.images.dtype == np.uint8


def test_nothing_to_do_changes_nothing():
    np.testing.assert_array_equal(augmented(KEYS, IMAGES).images, IMAGES)


def test_a_crop_is_a_translate_of_the_padded_image():
    crops = {crop.tobytes() for crop in augment_many(IMAGES[0], crop_padding=2, flip=False)}
    assert crops <= list_translates(IMAGES[0], 2)


def test_every_translate_occurs():
    crops = {crop.tobytes() for crop in augment_many(IMAGES[0], crop_padding=1, flip=False, draws=200)}
    assert crops == list_translates(IMAGES[0], 1)


def test_a_flip_is_the_image_or_its_mirror_about_equally_often():
    flipped = augment_many(IMAGES[0], crop_padding=0, flip=True, draws=400)
    is_mirror = (flipped == IMAGES[0][:, ::-1]).all((1, 2, 3))
    is_same = (flipped == IMAGES[0]).all((1, 2, 3))
    assert (is_mirror ^ is_same).all()
    assert 150 < is_mirror.sum() < 250


@pytest.mark.parametrize("example", range(4))
def test_an_example_does_not_depend_on_the_rest_of_its_batch(example):
    whole = augmented(KEYS, COLORS, **ALONE).images
    part = slice(example, example + 1)
    alone = augmented(KEYS[part], COLORS[part], LABELS[part], **ALONE).images
    np.testing.assert_array_equal(whole[example], alone[0])


def test_a_mixed_example_depends_on_its_partner_and_on_no_other():
    whole = augmented(KEYS, COLORS, **EVERYTHING)
    pair = np.array([1, 2])
    alone = augmented(KEYS[pair], COLORS[pair], LABELS[pair], **EVERYTHING)
    np.testing.assert_array_equal(whole.images[1:3], alone.images)
    np.testing.assert_array_equal(whole.labels[1:3], alone.labels)


def test_examples_of_a_batch_are_augmented_differently():
    assert len({crop.tobytes() for crop in augment_many(IMAGES[0], crop_padding=2, flip=True)}) > 10


def test_switching_the_flip_on_does_not_change_the_crop():
    cropped = np.asarray(augmented(KEYS, IMAGES, crop_padding=2, flip=False).images)
    both = np.asarray(augmented(KEYS, IMAGES, crop_padding=2, flip=True).images)
    agrees = (both == cropped).all((1, 2, 3)) | (both == cropped[:, :, ::-1]).all((1, 2, 3))
    assert agrees.all()


@pytest.mark.parametrize("channels", [1, 3])
def test_everything_at_once_stays_in_range(channels):
    result = augmented(KEYS, COLORS[..., :channels], **EVERYTHING)
    images = np.asarray(result.images)
    assert images.shape == (4, 6, 5, channels)
    assert np.isfinite(images).all()
    assert images.min() >= 0
    assert images.max() <= 255
    np.testing.assert_allclose(np.sum(result.labels, axis=-1), 1, rtol=1e-6)


def digest(result):
    return hashlib.sha256(np.asarray(result.images).tobytes() + np.asarray(result.labels).tobytes()).hexdigest()


def many(num_examples=24):
    keys = jax.random.split(jax.random.key(3), num_examples)
    images = np.random.default_rng(5).integers(0, 256, (num_examples, 13, 9, 3), dtype=np.uint8)
    return keys, images, np.arange(num_examples, dtype=np.int32) % 10


def test_compiled_or_not_the_bits_are_the_same():
    config = AugmentationConfig(**EVERYTHING)
    function = functools.partial(augment, config=config, num_classes=10, fill=FILL)
    digests = {digest(call(*many())) for call in (function, jax.jit(function))}
    assert digests == {digest(augmented(*many(), **EVERYTHING))}


def test_in_64_bits_the_bits_are_the_same():
    expected = digest(augmented(*many(), **EVERYTHING))
    keys, images, labels = many()
    with jax.enable_x64(True):
        compiled.cache_clear()
        result = augmented(keys, images, labels, **EVERYTHING)
    compiled.cache_clear()
    assert result.images.dtype == jnp.float32
    assert digest(result) == expected


ON_EIGHT_DEVICES = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
sys.path.insert(0, sys.argv[1])
import test_augment as tests
assert jax.device_count() == 8
batch = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
result = tests.augmented(*jax.device_put(tests.many(), batch), **tests.EVERYTHING)
assert len(result.images.sharding.device_set) == 8
print(tests.digest(result))
"""


def test_on_eight_devices_the_bits_are_the_same():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", ON_EIGHT_DEVICES, os.path.dirname(__file__)]
    result = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == digest(augmented(*many(), **EVERYTHING))


@pytest.mark.parametrize(("num_examples", "channels"), [(1, 3), (5, 1)])
def test_the_middle_of_an_odd_batch_is_mixed_with_itself(num_examples, channels):
    keys, images, labels = many(num_examples)
    result = augmented(keys, images[..., :channels], labels, mixup=0.8, cutmix=1.0)
    middle = num_examples // 2
    np.testing.assert_array_equal(result.images[middle], images[middle, ..., :channels])
    np.testing.assert_allclose(result.labels[middle], np.eye(10)[labels[middle]], atol=1e-6)


@pytest.mark.parametrize("options", [{**ALONE, "randaugment_magnitude": m} for m in (0.0, 10.0)])
def test_black_images_have_colours_of_the_fill_and_of_white_alone(options):
    """No division by an empty histogram; what is not black was painted, inverted, lightened or smoothed by neither."""
    images = augment_many(np.zeros((13, 9, 3), np.uint8), **options)
    assert images.dtype == np.uint8
    assert (images == 0).any()


def test_padding_by_a_whole_side_crops_within_the_padded_image():
    crops = {crop.tobytes() for crop in augment_many(IMAGES[0], crop_padding=6, draws=300)}
    assert crops <= list_translates(IMAGES[0], 6)
    assert np.zeros_like(IMAGES[0]).tobytes() in crops


def test_a_mix_of_probability_zero_changes_nothing():
    options = {**EVERYTHING, "mix_probability": 0.0}
    result = augmented(KEYS, COLORS, **options)
    np.testing.assert_array_equal(result.images, augmented(KEYS, COLORS, **ALONE).images)
    np.testing.assert_array_equal(result.labels, np.eye(10)[LABELS])


@pytest.mark.parametrize("concentration", [1e-3, 0.2, 1.0, 1e6])
def test_shares_follow_the_beta_distribution(concentration):
    keys, images = jax.random.split(jax.random.key(2), 2000), np.zeros((2000, 1, 1, 1), np.uint8)
    labels = np.arange(2000, dtype=np.int32) // 1000
    shares = np.asarray(augmented(keys, images, labels, num_classes=2, mixup=concentration).labels)
    drawn = shares[np.arange(2000), labels]
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(np.mean(drawn), 0.5, atol=0.04)
    np.testing.assert_allclose(np.var(drawn), 0.25 / (2 * concentration + 1), rtol=0.1, atol=1e-6)


def test_colour_jitter_leaves_the_geometry_and_changes_the_colours():
    jittered = augment_many(COLORS[0], color_jitter=0.4)
    assert len({image.tobytes() for image in jittered}) > 32
    grey = augment_many(np.full((6, 5, 3), 100, np.uint8), color_jitter=0.4)
    np.testing.assert_array_equal(grey, np.broadcast_to(grey[:, :1, :1, :1], grey.shape))


def test_randaugment_leaves_about_a_quarter_of_the_images_alone():
    """Two operations, each done with probability 1/2; a few more images come out as they were."""
    images = augment_many(COLORS[0], randaugment=2, draws=400)
    is_same = (images == COLORS[0]).all((1, 2, 3))
    assert 70 < is_same.sum() < 180


@pytest.mark.parametrize(("probability", "low", "high"), [(0.0, 0, 0), (0.25, 60, 140), (1.0, 400, 400)])
def test_erasing_paints_a_rectangle_as_often_as_asked(probability, low, high):
    image = np.full((16, 12, 3), 255, np.uint8)
    images = augment_many(image, erasing=probability, draws=400)
    is_painted = (images != image).any(-1)
    assert low <= is_painted.any((1, 2)).sum() <= high
    for mask, erased in zip(is_painted, images, strict=True):
        if mask.any():
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
            assert mask.sum() == len(rows) * len(columns)
            np.testing.assert_allclose(erased[mask], np.broadcast_to([51, 102, 153], (mask.sum(), 3)))


def test_mixup_mixes_an_image_and_its_label_by_one_share():
    images = np.stack([np.full((6, 5, 3), 40 * n, np.uint8) for n in range(4)])
    result = augmented(KEYS, images, mixup=0.8)
    shares = np.asarray(result.labels)
    for n, partner in enumerate([3, 2, 1, 0]):
        share = shares[n, n]
        assert 0 < share < 1
        assert shares[n, partner] == 1 - share
        np.testing.assert_array_equal(result.images[n], 40 * (share * n + (1 - share) * partner))


def test_cutmix_pastes_a_rectangle_and_counts_its_pixels():
    keys = jax.random.split(jax.random.key(2), 64)
    images = np.stack([np.full((12, 10, 3), n, np.uint8) for n in range(64)])
    result = augmented(keys, images, np.arange(64, dtype=np.int32), num_classes=64, cutmix=1.0)
    pasted = np.asarray(result.images)[..., 0]
    for n in range(64):
        assert set(np.unique(pasted[n])) <= {n, 63 - n}
        np.testing.assert_allclose(np.mean(pasted[n] == n), result.labels[n, n], atol=1e-6)
        rows, columns = (np.unique(places) for places in np.nonzero(pasted[n] != n))
        assert (pasted[n] != n).sum() == len(rows) * len(columns)
    assert len({float(result.labels[n, n]) for n in range(64)}) > 20


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 5), (0.5, 150, 250), (1.0, 400, 400)])
def test_cutmix_and_mixup_share_the_examples(share, low, high):
    keys = jax.random.split(jax.random.key(2), 400)
    images = np.stack([np.full((12, 10, 1), n % 200, np.uint8) for n in range(400)])
    labels = np.zeros(400, np.int32)
    result = augmented(keys, images, labels, num_classes=2, mixup=1.0, cutmix=1.0, cutmix_share=share)
    own, partner = images.astype(float), images[::-1].astype(float)
    is_cutmix = ((result.images == own) | (result.images == partner)).all((1, 2, 3))
    assert low <= is_cutmix.sum() <= high  # A share of mixup may round to 0 or 1.


def test_an_example_is_mixed_as_often_as_asked():
    keys = jax.random.split(jax.random.key(2), 400)
    images = np.zeros((400, 4, 4, 1), np.uint8)
    labels = np.arange(400, dtype=np.int32) % 7
    shares = np.asarray(augmented(keys, images, labels, num_classes=7, mixup=1.0, mix_probability=0.3).labels)
    assert 80 < (shares.max(-1) < 1).sum() < 160
