"""``ctt info --figure``: the first batch as a picture, or a refusal at once."""

import json
import os

import pytest

from ctt.cli.main import main


def test_it_draws_the_first_batch(config_file, compilation_cache, tmp_path, capsys):
    figure, values = tmp_path / "new" / "batch.png", tmp_path / "info.json"
    assert main(["info", str(config_file), "--figure", str(figure), "--json", str(values)]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert str(figure) in capsys.readouterr().out
    assert json.loads(values.read_text())["figure"] == str(figure)


@pytest.mark.parametrize("name", ["batch", "batch.gif", "batch.png.txt"])
def test_an_unknown_format_is_refused(config_file, tmp_path, capsys, name):
    assert main(["info", str(config_file), "--figure", str(tmp_path / name)]) == 2
    message = capsys.readouterr().err
    assert "`--figure` must end in .png, .svg or .pdf" in message
    assert "Compiling" not in message


def test_a_place_that_cannot_be_written_is_refused(config_file, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    places = [tmp_path / "file" / "batch.png", tmp_path / "folder.png"]
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        places.append(tmp_path / "locked" / "batch.png")
    for place in places:
        assert main(["info", str(config_file), "--figure", str(place)]) == 2
        assert "`--figure` must be a file that can be written" in capsys.readouterr().err


def test_data_that_are_not_there_are_refused_in_a_sentence(config_file, tmp_path, capsys):
    words = ["info", str(config_file), "--data.name", "cifar10", "--data.dir", str(tmp_path)]
    assert main([*words, "--figure", str(tmp_path / "batch.png")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "batch.png").exists()
