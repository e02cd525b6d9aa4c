"""Data: from a name in the config to batches of pixels and labels.

`load_dataset` (source) reads a whole set as a `Dataset` of three `Split`s (dataset). It has two
sources: the digits bundled with scikit-learn (digits), and the prepared sets of TensorFlow
Datasets, read without TensorFlow (prepared), which are fetched if need be (download) and decoded
(decode) once, into a cache on disk (cache), from which images are read when asked for (mapped).
What both ask of the config is in requirement; the validation split is held out of the training
split once and for all runs (holdout); a fingerprint of pixels and labels tells copies of one set
apart (fingerprint). Images of any size and kind are brought to the model's shape, whether they
come from a set or are single files for `read_image` (image).

During training, `batch_indices` says which examples make step number s: a pure function of seed
and step, of `steps_per_epoch` steps an epoch; `padded_batches` covers a split once for evaluation
(sampler). The training images live on the device, or a `Stream` reads the same batches ahead
(stream); `choose_input` decides (input). `augment` changes a batch inside the compiled step
(augment).

scikit-learn, TensorFlow Datasets and grain are imported when first needed, not with this package.
"""

from ctt.data.augment import augment
from ctt.data.dataset import Dataset, Split
from ctt.data.image import read_image
from ctt.data.input import choose_input, find_device_bytes
from ctt.data.sampler import batch_indices, padded_batches, steps_per_epoch
from ctt.data.source import load_dataset
from ctt.data.stream import HostBatch, Stream

__all__ = [
    "Dataset",
    "HostBatch",
    "Split",
    "Stream",
    "augment",
    "batch_indices",
    "choose_input",
    "find_device_bytes",
    "load_dataset",
    "padded_batches",
    "read_image",
    "steps_per_epoch",
]
