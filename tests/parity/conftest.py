"""Models of other libraries with random weights, as files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def write_weights(tmp_path: Path) -> Any:
    """Return a function that writes tensors and a config into a new folder."""
    from safetensors.numpy import save_file

    def write(tensors: dict[str, np.ndarray], config: dict[str, Any] | None = None, name: str = "theirs") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        save_file({key: value.copy(order="C") for key, value in tensors.items()}, folder / "model.safetensors")
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


@pytest.fixture
def read_tensors() -> Any:
    """Return a function that reads the tensors of a folder."""
    from safetensors.numpy import load_file

    return lambda folder: load_file(Path(folder) / "model.safetensors")


@pytest.fixture
def assert_same_tensors() -> Any:
    """Return a function that asserts that two dictionaries of tensors are equal bit for bit."""

    def check(received: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
        assert received.keys() == expected.keys()
        for name, tensor in expected.items():
            assert received[name].dtype == tensor.dtype, name
            np.testing.assert_array_equal(received[name], tensor, err_msg=name)

    return check


@pytest.fixture
def randomize_torch() -> Any:
    """Return a function that draws every weight of a torch module, so that a test sees each of them."""
    import torch

    def draw(module: Any, seed: int = 0) -> Any:
        generator = torch.Generator().manual_seed(seed)
        module = module.eval()
        with torch.no_grad():
            for name, weight in [*module.named_parameters(), *module.named_buffers()]:
                if not weight.is_floating_point():
                    weight.fill_(3)
                    continue
                is_kernel = weight.ndim in (2, 4)
                size = weight[0].numel() ** -0.5 if is_kernel else 0.3
                is_scale = "norm" in name and name.endswith("weight")
                noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                if name.endswith("running_var"):
                    weight.copy_(0.5 + noise.abs())
                else:
                    weight.copy_((1.0 if is_scale else 0.0) + size * noise)
        return module

    return draw
