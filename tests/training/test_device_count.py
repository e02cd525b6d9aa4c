"""How many devices share a batch: as many as can, or as many as asked for, or a refusal; other models and parts too."""

import dataclasses

import jax
import pytest
from device_runs import losses, play, train_scene
from test_cvt_run import CONFIG as CVT_CONFIG

from ctt.cli.main import main
from ctt.config.error import InputError
from ctt.config.schema import DevicesConfig
from ctt.training.devices import build_layout

# See test_devices.py; 5e-7 was measured with batch normalisation and with micro-batches.
TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that nothing is put on."""

    id: int
    process_index: int = 0


@pytest.fixture
def have_devices(monkeypatch):
    def have(count, num_processes=1):
        devices = [Device(index, index * num_processes // count) for index in range(count)]
        monkeypatch.setattr(jax, "devices", lambda: devices)
        monkeypatch.setattr(jax, "process_count", lambda: num_processes)

    return have


@pytest.mark.parametrize(
    ("available", "batch_size", "fsdp", "data"),
    [
        (8, 128, 1, 8),
        (8, 128, 4, 2),
        (8, 12, 1, 6),
        (8, 12, 2, 3),
        (8, 7, 1, 7),
        (8, 13, 1, 1),
        (6, 128, 1, 4),
        (1, 5, 1, 1),
    ],
)
def test_as_many_groups_share_a_batch_as_can(have_devices, available, batch_size, fsdp, data):
    have_devices(available)
    layout = build_layout(DevicesConfig(fsdp=fsdp), batch_size)
    assert dict(layout.mesh.shape) == {"data": data, "fsdp": fsdp}
    assert [device.id for device in layout.mesh.devices.flat] == list(range(data * fsdp))


@pytest.mark.parametrize("devices", [DevicesConfig(data=9), DevicesConfig(data=3, fsdp=4), DevicesConfig(fsdp=16)])
def test_more_devices_than_there_are_are_refused(have_devices, devices):
    have_devices(8)
    with pytest.raises(InputError, match="must be at most the number of devices, 8, got"):
        build_layout(devices, 144)


def test_processes_whose_devices_cannot_share_a_batch_are_refused(have_devices):
    have_devices(8, num_processes=2)
    assert build_layout(DevicesConfig(), 64).mesh.size == 8
    with pytest.raises(InputError, match="must be a multiple of the 8 devices of all processes"):
        build_layout(DevicesConfig(), 12)
    with pytest.raises(InputError, match="must be a multiple of the 8 devices of all processes"):
        build_layout(DevicesConfig(data=4), 64)  # One of the processes would have nothing to do.


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--devices.data", "3"], "devices.data"),
        (["--devices.fsdp", "5"], "devices.fsdp"),
        (["--devices.data", "0"], "devices.data"),
        (["--devices.data", "16"], "devices.data"),
    ],
)
def test_devices_that_cannot_be_are_refused_in_one_sentence(config_file, tmp_path, capsys, words, name):
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"`{name}`" in line
    assert not (tmp_path / "run").exists()


# The same on eight devices.

PARTS = ["--training.micro-batches", "2", "--model.dropout", "0.1", "--augmentation.mixup", "0.8"]
NORMALISED = ["--augmentation.mixup", "0.8"]


@pytest.fixture(scope="module")
def cvt_config(tmp_path_factory):
    path = tmp_path_factory.mktemp("configs") / "cvt.py"
    path.write_text(CVT_CONFIG)
    return path


@pytest.mark.slow
def test_batch_normalisation_and_micro_batches_on_eight_devices(compilation_cache, cvt_config, config_file, tmp_path):
    runs = {
        "cvt": [cvt_config, *NORMALISED, "--training.log-every", "1"],
        "cvt_cut": [cvt_config, *NORMALISED, "--training.log-every", "1", "--devices.fsdp", "2"],
        "parts": [config_file, *PARTS, "--training.log-every", "1"],
        "uneven": [config_file, "--training.batch-size", "12", "--training.log-every", "1"],
    }
    answers = play([train_scene(words[0], tmp_path / name, *words[1:]) for name, words in runs.items()])
    assert [answer["status"] for answer in answers] == [0] * len(runs), answers
    for name, (config, *words) in runs.items():
        whole = tmp_path / f"{name}_on_one"
        assert main(["train", str(config), "--out", str(whole), *words, "--devices.fsdp", "1"]) == 0
        for split in ("train", "val", "test"):
            ours, theirs = losses(tmp_path / name, split), losses(whole, split)
            assert ours == pytest.approx(theirs, rel=0, abs=TOLERANCE)
