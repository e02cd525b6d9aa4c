import jax
import numpy as np
import pytest

from ctt.data import augment

# Every pixel is different and none is zero, so that a translate is recognised and told from padding.
IMAGES = (1 + np.arange(4 * 6 * 5 * 1).reshape(4, 6, 5, 1)).astype(np.uint8)
KEYS = jax.random.split(jax.random.key(0), 4)


def augment_many(image, *, crop_padding, flip, draws=64):
    keys = jax.random.split(jax.random.key(1), draws)
    return np.asarray(augment(keys, np.repeat(image[None], draws, axis=0), crop_padding=crop_padding, flip=flip))


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
    augmented = jax.jit(augment, static_argnames=("crop_padding", "flip"))(
        KEYS, images, crop_padding=crop_padding, flip=flip
    )
    assert augmented.shape == images.shape
    assert augmented.dtype == np.uint8


def test_nothing_to_do_changes_nothing():
    np.testing.assert_array_equal(augment(KEYS, IMAGES, crop_padding=0, flip=False), IMAGES)


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
    options = {"crop_padding": 2, "flip": True}
    whole = augment(KEYS, IMAGES, **options)
    alone = augment(KEYS[example : example + 1], IMAGES[example : example + 1], **options)
    np.testing.assert_array_equal(whole[example], alone[0])


def test_examples_of_a_batch_are_augmented_differently():
    assert len({crop.tobytes() for crop in augment_many(IMAGES[0], crop_padding=2, flip=True)}) > 10


def test_switching_the_flip_on_does_not_change_the_crop():
    cropped = np.asarray(augment(KEYS, IMAGES, crop_padding=2, flip=False))
    both = np.asarray(augment(KEYS, IMAGES, crop_padding=2, flip=True))
    agrees = (both == cropped).all((1, 2, 3)) | (both == cropped[:, :, ::-1]).all((1, 2, 3))
    assert agrees.all()
