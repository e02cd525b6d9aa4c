"""A run keeps the certificate of its discretisation, and logs its splitting error if asked to."""

import json

import pytest
from tiny_run import read_lines

from ctt.cli.main import main


@pytest.fixture(scope="module")
def certified_run(compilation_cache, config_file, tmp_path_factory):
    """The tiny run with a certificate and a splitting error."""
    out = tmp_path_factory.mktemp("runs") / "certified"
    words = ["--training.certify", "--training.log-splitting-error", "--model.activation", "gelu"]
    assert main(["train", str(config_file), "--out", str(out), *words]) == 0
    return out


def manifest(run):
    return json.loads((run / "manifest.json").read_text())


def test_the_manifest_has_the_measured_order(certified_run):
    certificate = manifest(certified_run)["certificate"]
    assert (certificate["outcome"], certificate["values"]["promised"]) == ("holds", 1)
    assert abs(certificate["values"]["slopes"][-1] - 1) < 0.1


def test_the_splitting_error_of_every_step_is_logged_with_each_evaluation(certified_run):
    lines = [line["splitting"] for line in read_lines(certified_run) if line["split"] == "val"]
    assert len(lines) == 2
    for line in lines:
        assert {len(values) for values in line.values()} == {2}
        assert {"free_estimate", "lie_strang", "commutator", "increment", "lipschitz_attention"} <= set(line)
        assert min(line["lie_strang"]) > 0


def test_without_the_flags_there_is_neither(finished_run):
    assert manifest(finished_run)["certificate"] is None
    assert not any("splitting" in line for line in read_lines(finished_run))


def test_a_run_without_a_limit_says_so_in_its_manifest(compilation_cache, config_file, tmp_path, capsys):
    words = ["--training.certify", "--normalization.placement", "post", "--training.steps", "1"]
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *words]) == 0
    certificate = manifest(tmp_path / "run")["certificate"]
    assert certificate["outcome"] == "refused"
    assert "no limit as the step goes to 0" in certificate["text"]
    assert certificate["text"] in capsys.readouterr().out


def test_the_literal_scheme_is_trained(compilation_cache, config_file, tmp_path):
    words = "--splitting.scheme literal --normalization.placement post --model.dropout 0 --training.steps 2"
    assert main(["train", str(config_file), "--out", str(tmp_path / "run"), *words.split(), "--training.certify"]) == 0
    assert manifest(tmp_path / "run")["certificate"]["outcome"] == "refused"


PICKY = """
import jax.numpy as jnp


class Picky:
    def __init__(self, config, *, rngs):
        self.width = config.model.width

    def vector_field(self, t, u):
        if u.shape[-2] != 4:
            raise ValueError("I want four tokens")
        return u
"""


def test_an_operator_that_cannot_be_made_small_does_not_stop_the_run(compilation_cache, config_file, tmp_path, capsys):
    (tmp_path / "picky.py").write_text(PICKY)
    words = f"--model.operators attention {tmp_path}/picky.py:Picky --model.patch-size 4 --training.steps 1"
    assert main(["train", str(config_file), "--out", str(tmp_path / "a"), *words.split(), "--training.certify"]) == 0
    words = words.replace("--model.patch-size 4", "--model.patch-size 2").replace("picky.py", "many.py")
    (tmp_path / "many.py").write_text(PICKY.replace("!= 4", "!= 16").replace("four", "sixteen"))
    assert main(["train", str(config_file), "--out", str(tmp_path / "b"), *words.split(), "--training.certify"]) == 0
    certificates = [manifest(tmp_path / name)["certificate"] for name in "ab"]
    assert [certificate["outcome"] for certificate in certificates] == ["holds", "not resolved"]
    assert "ValueError: I want sixteen tokens" in capsys.readouterr().out
