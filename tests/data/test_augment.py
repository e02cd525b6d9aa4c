import jax
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


def augmented(keys, images, labels=LABELS, **options):
    config = AugmentationConfig(**options)
    fill = FILL[: images.shape[-1]]
    return augment(keys, images, labels, config, num_classes=10, fill=fill)


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
    result = jax.jit(lambda keys, images: augmented(keys, images, crop_padding=crop_padding, flip=flip))(KEYS, images)
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
    options = {**EVERYTHING, "mixup": 0.0, "cutmix": 0.0}
    whole = augmented(KEYS, COLORS, **options).images
    part = slice(example, example + 1)
    alone = augmented(KEYS[part], COLORS[part], LABELS[part], **options).images
    np.testing.assert_array_equal(whole[example], alone[0])


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


def test_a_batch_on_eight_places_is_that_on_one():
    """Each example is drawn from its own key, so a batch that is cut up is the same batch, bit for bit."""
    options = {**EVERYTHING, "mixup": 0.0, "cutmix": 0.0}
    keys = jax.random.split(jax.random.key(3), 8)
    images, labels = np.concatenate([COLORS, COLORS[::-1]]), np.arange(8, dtype=np.int32)
    whole = augmented(keys, images, labels, **options).images
    parts = [augmented(keys[n : n + 1], images[n : n + 1], labels[n : n + 1], **options).images for n in range(8)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


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
            np.testing.assert_allclose(erased[mask], np.broadcast_to(255 * np.float32(FILL), (mask.sum(), 3)))


def test_mixup_mixes_an_image_and_its_label_by_one_share():
    images = np.stack([np.full((6, 5, 3), 40 * n, np.uint8) for n in range(4)])
    result = augmented(KEYS, images, mixup=0.8)
    shares = np.asarray(result.labels)
    for n, partner in enumerate([3, 2, 1, 0]):
        share = shares[n, n]
        assert 0 < share < 1
        np.testing.assert_allclose(shares[n, partner], 1 - share, rtol=1e-5)
        np.testing.assert_allclose(result.images[n], 40 * (share * n + (1 - share) * partner), rtol=1e-4, atol=1e-4)


def test_cutmix_pastes_a_rectangle_and_counts_its_pixels():
    keys = jax.random.split(jax.random.key(2), 64)
    images = np.stack([np.full((12, 10, 3), n, np.uint8) for n in range(64)])
    result = augment(
        keys, images, np.arange(64, dtype=np.int32), AugmentationConfig(cutmix=1.0), num_classes=64, fill=FILL
    )
    pasted = np.asarray(result.images)[..., 0]
    for n in range(64):
        assert set(np.unique(pasted[n])) <= {n, 63 - n}
        np.testing.assert_allclose(np.mean(pasted[n] == n), result.labels[n, n], atol=1e-6)
    assert len({float(result.labels[n, n]) for n in range(64)}) > 20


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 0), (0.5, 150, 250), (1.0, 400, 400)])
def test_cutmix_and_mixup_share_the_examples(share, low, high):
    keys = jax.random.split(jax.random.key(2), 400)
    images = np.stack([np.full((12, 10, 1), n % 200, np.uint8) for n in range(400)])
    config = AugmentationConfig(mixup=1.0, cutmix=1.0, cutmix_share=share)
    result = augment(keys, images, np.zeros(400, np.int32), config, num_classes=2, fill=(0.5,))
    own, partner = images.astype(float), images[::-1].astype(float)
    is_cutmix = ((result.images == own) | (result.images == partner)).all((1, 2, 3))
    assert low <= is_cutmix.sum() <= high + 5  # A share of mixup may round to 0 or 1.


def test_an_example_is_mixed_as_often_as_asked():
    keys = jax.random.split(jax.random.key(2), 400)
    images = np.zeros((400, 4, 4, 1), np.uint8)
    config = AugmentationConfig(mixup=1.0, mix_probability=0.3)
    labels = np.asarray(augment(keys, images, np.arange(400) % 7, config, num_classes=7, fill=(0.5,)).labels)
    assert 80 < (labels.max(-1) < 1).sum() < 160
