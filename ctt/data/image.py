"""Image files of any size and kind, brought to the shape that a model sees."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from ctt.config.error import InputError

_SIXTEEN_BIT_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")


def read_image(
    path: str | os.PathLike[str], image_shape: tuple[int, int, int]
) -> UInt8[np.ndarray, "height width channels"]:
    """Read an image file of any size as the model sees it.

    The orientation tag of cameras is obeyed, transparent parts are laid on white, 16-bit grey
    values are scaled to 8 bits, and of a file with several frames the first is read.

    Args:
        path: the image file, in any format that Pillow reads.
        image_shape: height, width [pixels] and channels (1: grey, 3: RGB) of the result.

    Returns:
        Pixels `[height, width, channels]`, 0 to 255.

    Raises:
        InputError: the file is missing, a folder, unreadable, no image, damaged, or so large
            that decoding it could exhaust the memory.
    """
    name = os.fspath(path)
    if not os.path.exists(name):
        raise InputError(f"The image must be an existing file, got {name!r}, which does not exist. Check the path.")
    if not os.path.isfile(name):
        raise InputError(f"The image must be a file, got {name!r}, a folder or device. Pass one image file.")
    try:
        with open(name, "rb") as file, guard_decoding():
            return decode_image(file, image_shape, is_upright=False)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(
            f"The image must have at most {Image.MAX_IMAGE_PIXELS} pixels, got {name!r} with more. Scale it down first."
        ) from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"The image must be of a format that Pillow reads, got {name!r}. Convert it to PNG or JPEG."
        ) from error
    except PermissionError as error:
        raise InputError(f"The image must be readable, got {name!r}. Change its permissions.") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, ArithmeticError) as error:
        # Pillow's decoders raise all of these on damaged files, depending on the format.
        raise InputError(
            f"The image must be whole and of 8- or 16-bit pixels, got {name!r} ({_first_line(error)}). "
            "Save it again as PNG or JPEG."
        ) from error


@contextmanager
def guard_decoding() -> Iterator[None]:
    """Turn Pillow's warning of a decompression bomb into an error and drop its other warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode_image(
    file: IO[bytes], image_shape: tuple[int, int, int], *, is_upright: bool
) -> UInt8[np.ndarray, "height width channels"]:
    """Decode an encoded image and bring it to `image_shape`.

    Args:
        file: the encoded image.
        image_shape: height, width [pixels] and channels of the result.
        is_upright: whether to ignore the orientation tag of cameras.

    Returns:
        Pixels `[height, width, channels]`, 0 to 255.
    """
    with Image.open(file) as image:
        image.load()
        upright = image if is_upright else ImageOps.exif_transpose(image)
        return fit_image(upright, image_shape)


def fit_image(image: Image.Image, image_shape: tuple[int, int, int]) -> UInt8[np.ndarray, "height width channels"]:
    """Convert the channels, scale the image until it just covers the shape, and crop its centre.

    Args:
        image: any image; where its height and width are right, its pixels are not touched.
        image_shape: height, width [pixels] and channels (1: grey, 3: RGB) of the result.

    Returns:
        Pixels `[height, width, channels]`, 0 to 255.

    Raises:
        InputError: the number of channels is neither 1 nor 3.
    """
    height, width, channels = image_shape
    if channels not in (1, 3):
        raise InputError(f"`data.image_shape` must have 1 or 3 channels, got {channels}. Pass --data.image_shape.")
    converted = _convert_mode(image, "L" if channels == 1 else "RGB")
    if converted.size != (width, height):
        converted = ImageOps.fit(converted, (width, height), method=Image.Resampling.BILINEAR)
    return np.array(converted, dtype=np.uint8).reshape(height, width, channels)


def _convert_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return `image` in Pillow's mode `L` or `RGB`."""
    if image.mode == mode and "transparency" not in image.info:
        return image
    if image.mode in _SIXTEEN_BIT_MODES:
        return _scale_to_8_bits(image).convert(mode)
    if image.mode == "F":
        raise ValueError("floating-point pixels of unknown range")
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        white = Image.new("RGBA", opaque.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, opaque).convert(mode)
    return image.convert(mode)


def _scale_to_8_bits(image: Image.Image) -> Image.Image:
    """Return a 16-bit grey image, 0 to 65535, as an 8-bit one, 0 to 255."""
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("32-bit pixels of unknown range")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
