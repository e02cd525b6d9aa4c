import warnings

import numpy as np
import pytest
from PIL import Image

from ctt.config.error import InputError
from ctt.data import read_image


def save(path, array_or_image, **options):
    image = array_or_image if isinstance(array_or_image, Image.Image) else Image.fromarray(array_or_image)
    image.save(path, **options)
    return path


RGB = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize("image_shape", [(32, 32, 3), (32, 32, 1), (8, 8, 1), (28, 20, 3)])
@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (33, 31), (64, 64)])
def test_an_image_of_any_size_takes_the_models_shape(tmp_path, image_shape, size):
    path = save(tmp_path / "image.png", Image.fromarray(RGB).resize(size))
    pixels = read_image(path, image_shape)
    assert pixels.shape == image_shape
    assert pixels.dtype == np.uint8


def test_pixels_of_the_right_shape_are_untouched(tmp_path):
    np.testing.assert_array_equal(read_image(save(tmp_path / "image.png", RGB), (32, 32, 3)), RGB)


def test_the_centre_of_a_wide_image_is_cropped(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (read_image(save(tmp_path / "image.png", wide), (10, 10, 3)) == 200).all()


def test_the_shorter_side_is_scaled_to_the_model(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 200
    assert (read_image(save(tmp_path / "image.png", wide), (10, 10, 3))[:, 1:-1] == 200).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_white_image_of_any_mode_is_white(tmp_path, mode, channels):
    white = Image.fromarray(np.full((8, 8, 3), 255, np.uint8))
    image = Image.fromarray(np.full((8, 8), 65535, np.uint16)) if mode == "I;16" else white.convert(mode)
    path = save(tmp_path / "image.tiff", image)
    assert (read_image(path, (8, 8, channels)) == 255).all()


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_16_bit_grey_is_scaled_not_clipped(tmp_path, suffix):
    values = (np.arange(64, dtype=np.uint16).reshape(8, 8)) * 4 * 257
    pixels = read_image(save(tmp_path / f"image.{suffix}", values), (8, 8, 1))
    np.testing.assert_array_equal(pixels[..., 0], np.arange(64).reshape(8, 8) * 4)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_parts_are_laid_on_white(tmp_path, mode):
    path = save(tmp_path / "image.png", Image.fromarray(np.zeros((8, 8, 4), np.uint8)).convert(mode))
    assert (read_image(path, (8, 8, 3)) == 255).all()


def test_a_transparent_palette_colour_is_laid_on_white(tmp_path):
    image = Image.new("P", (8, 8), 0)
    image.putpalette([10, 20, 30] * 256)
    path = save(tmp_path / "image.png", image, transparency=bytes([0] * 256))
    assert (read_image(path, (8, 8, 3)) == 255).all()


def test_the_orientation_tag_of_cameras_is_obeyed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    path = save(tmp_path / "image.png", RGB, exif=exif)
    np.testing.assert_array_equal(read_image(path, (32, 32, 3)), RGB[::-1, ::-1])


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("L", (8, 8), value) for value in (40, 200)]
    path = tmp_path / "image.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert (read_image(path, (8, 8, 1)) == 40).all()


def write_missing(path):
    pass


def write_folder(path):
    path.mkdir()


def write_text(path):
    path.write_text("not an image")


def write_empty(path):
    path.touch()


def write_truncated(path):
    whole = save(path, RGB, format="PNG").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def write_truncated_jpeg(path):
    whole = save(path, RGB, format="JPEG").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def write_floats(path):
    save(path, np.ones((8, 8), np.float32), format="TIFF")


def write_32_bits(path):
    save(path, np.full((8, 8), 10**6, np.int32), format="TIFF")


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (write_missing, "must be an existing file, got .*does not exist. Check the path"),
        (write_folder, "must be a file, got .*a folder or device. Pass one image file"),
        (write_text, "must be of a format that Pillow reads, got .*Convert it to PNG or JPEG"),
        (write_empty, "must be of a format that Pillow reads, got"),
        (write_truncated, "must be whole .* got .*Save it again"),
        (write_truncated_jpeg, "must be whole .* got .*truncated.*Save it again"),
        (write_floats, "must be whole and of 8- or 16-bit pixels, got .*floating-point"),
        (write_32_bits, "must be whole and of 8- or 16-bit pixels, got .*32-bit"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, write, match):
    path = tmp_path / "suspect.png"
    write(path)
    with pytest.raises(InputError, match=match) as caught:
        read_image(path, (8, 8, 3))
    assert "suspect.png" in str(caught.value)


def test_a_file_that_may_not_be_opened_is_refused(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    path = save(tmp_path / "image.png", RGB)
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"must be readable, got .*permissions"):
        read_image(path, (8, 8, 3))


@pytest.mark.parametrize("max_pixels", [400, 1000])
def test_a_decompression_bomb_is_refused_and_no_warning_passes(tmp_path, monkeypatch, max_pixels):
    # Pillow raises beyond twice the limit (400) and only warns below (1000).
    path = save(tmp_path / "image.png", RGB)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", max_pixels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(InputError, match=f"at most {max_pixels} pixels, got .*image.png"):
            read_image(path, (8, 8, 3))
    assert caught == []
