"""What the first batch of a run looks like: images of the data, and what the update makes of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.schema import AugmentationConfig, Config
from ctt.data.dataset import Dataset
from ctt.data.sampler import batch_indices
from ctt.reports.style import INK, QUIET, house_style
from ctt.training.state import Batch
from ctt.training.step import augment_batch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_EXAMPLES = 12
"""At most so many images are shown."""

_COLUMNS = 6
_LEAST_SHARE = 0.005


@dataclass(frozen=True)
class ExampleBatch:
    """Some examples of a batch, before and after augmentation.

    Attributes:
        originals: pixels `[examples, height, width, channels]`.
        augmented: pixels of the same shape, 0 to 255.
        names: the class of each original.
        captions: the class of each augmented image, or its shares of classes.
    """

    originals: np.ndarray
    augmented: np.ndarray
    names: list[str]
    captions: list[str]


def draw_batch(config: Config, dataset: Dataset, *, step: int = 0, num_examples: int = NUM_EXAMPLES) -> ExampleBatch:
    """Return the first examples of a batch, exactly as the update with this number sees them.

    Args:
        config: a resolved config.
        dataset: its data.
        step: number of finished updates.
        num_examples: how many are wanted; there are never more than the batch holds.
    """
    size = config.training.batch_size
    chosen = batch_indices(config.seed, step, num_examples=len(dataset.train), batch_size=size)
    # A mixture needs the partner, which is as far from the end of the batch as the example is from its beginning.
    count = min(num_examples, size)
    slots = np.arange(size) if size <= 2 * count else np.r_[np.arange(count), np.arange(size - count, size)]
    split = dataset.train.select(chosen[slots])
    batch = Batch(jnp.asarray(split.images), jnp.asarray(split.labels))
    places, update = jnp.asarray(slots), jnp.asarray(step, jnp.int32)
    result = jax.jit(lambda batch: augment_batch(config, update, batch, slots=places))(batch)
    images, labels = np.asarray(result.images)[:count], np.asarray(result.labels)[:count]
    return ExampleBatch(
        originals=split.images[:count],
        augmented=images,
        names=[dataset.class_names[label] for label in split.labels[:count]],
        captions=[describe_label(label, dataset.class_names) for label in labels],
    )


def describe_label(label: np.ndarray, class_names: tuple[str, ...]) -> str:
    """Return a class by name, or a mixture of classes, such as ``0.63 cat + 0.37 ship``.

    Args:
        label: a class, or the shares of all classes `[classes]`.
        class_names: a name a class.

    Example:
        >>> describe_label(np.array([0.37, 0.63]), ("ship", "cat"))
        '0.63 cat + 0.37 ship'
    """
    if label.ndim == 0:
        return class_names[int(label)]
    order = [int(index) for index in np.argsort(-label, kind="stable") if label[index] > _LEAST_SHARE]
    if len(order) == 1:
        return class_names[order[0]]
    return " + ".join(f"{label[index]:.2f} {class_names[index]}" for index in order)


def describe_augmentation(config: AugmentationConfig) -> str:
    """Return what is done to a training image, in words.

    Args:
        config: the augmentation.

    Example:
        >>> describe_augmentation(AugmentationConfig(crop_padding=4, flip=True, mixup=0.8))
        'crop of 4 pixels padding, flip, mixup 0.8'
    """
    parts = {
        f"crop of {config.crop_padding} pixel{'s' * (config.crop_padding != 1)} padding": config.crop_padding,
        "flip": config.flip,
        f"RandAugment ({config.randaugment} operation{'s' * (config.randaugment != 1)}, magnitude "
        f"{config.randaugment_magnitude:g} ± {config.randaugment_magnitude_std:g})": config.randaugment,
        f"colour jitter {config.color_jitter:g}": config.color_jitter,
        f"erasing {config.erasing:.0%}": config.erasing,
        f"mixup {config.mixup:g}": config.mixup,
        f"cutmix {config.cutmix:g}": config.cutmix,
    }
    text = ", ".join(part for part, is_on in parts.items() if is_on)
    if (config.mixup or config.cutmix) and config.mix_probability < 1:
        text += f" ({config.mix_probability:.0%} of the images are mixed)"
    return text or "no augmentation"


def plot_batch(config: Config, examples: ExampleBatch, *, step: int = 0) -> "Figure":
    """Return a figure of some examples: above each pair what is in the data, below what the model sees.

    Args:
        config: a resolved config.
        examples: of `draw_batch`.
        step: number of finished updates.
    """
    from matplotlib.figure import Figure

    count, both = len(examples.names), list(zip(examples.captions, examples.names, strict=True))
    columns = min(_COLUMNS, count)
    bands = -(-count // columns)
    height, width = examples.originals.shape[1:3]
    side = 1.35
    cell = side * min(max(height / width, 0.4), 2.5)
    label_width, text, header = 1.0, 0.24, 0.75
    lines = max(0 if caption == name else caption.count(" + ") + 1 for caption, name in both)
    gap = 0.2 + 0.16 * lines
    band = 2 * cell + text + gap
    page = (max(label_width + columns * (side + 0.16) + 0.1, 6.4), header + bands * band)
    title = "the first training batch" if step == 0 else f"the training batch after step {step:,}"
    with house_style():
        figure = Figure(figsize=page)
        top = page[1] - 0.26
        figure.text(0.15 / page[0], top / page[1], f"{config.name}: {title}", weight="bold", size=12)
        about = f"{describe_augmentation(config.augmentation)}  ·  seed {config.seed}"
        figure.text(0.15 / page[0], (top - 0.24) / page[1], about, size=8.5, color=QUIET)
        for index in range(count):
            left = label_width + (index % columns) * (side + 0.16)
            upper = page[1] - header - (index // columns) * band - text - cell
            rows = (
                (upper + 0.02, examples.originals[index], examples.names[index], "data"),
                (upper - cell - 0.04, examples.augmented[index], examples.captions[index], "model sees"),
            )
            for row, (bottom, pixels, caption, name) in enumerate(rows):
                place = (left / page[0], bottom / page[1], side / page[0], cell / page[1])
                axes = figure.add_axes(place)
                axes.imshow(np.clip(pixels / 255, 0, 1).squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axes.set_axis_off()
                if index % columns == 0:
                    middle = (bottom + cell / 2) / page[1]
                    figure.text(0.15 / page[0], middle, name, size=8.5, color=QUIET, va="center")
                if row == 0:
                    axes.set_title(_shorten(caption), size=8, weight="normal", color=INK, pad=3, loc="left")
                elif caption != examples.names[index]:
                    words = "\n+ ".join(_shorten(part) for part in caption.split(" + "))
                    figure.text(left / page[0], (bottom - 0.05) / page[1], words, size=8, color=INK, va="top")
    return figure


def _shorten(text: str, longest: int = 20) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
