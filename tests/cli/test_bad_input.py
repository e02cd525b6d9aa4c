"""Wrong input of every kind: status 2, one sentence that names it and the way out, nothing written."""

import re
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_run import CONFIG, hash_tree

from ctt.cli.main import main

REMEDY = re.compile(
    r"\b(pass|set it|give|choose|did you mean|check|convert|save it again|scale it|train the run|known|add one|mend"
    r"|restore|resume|--resume|prepare|such as|must return|ctt predict RUN IMAGE)\b",
    re.IGNORECASE,
)
CIFAR = "--data.name cifar10 --data.dir"


@pytest.fixture
def workplace(finished_run, tmp_path, monkeypatch):
    """A working folder with configs, runs and images, good and bad; no host name resolves in it."""

    def fail(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 64)
    monkeypatch.chdir(tmp_path)
    _write_configs(tmp_path)
    _write_images(tmp_path)
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.copytree(finished_run, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    return tmp_path


def _write_configs(folder: Path) -> None:
    (folder / "tiny.py").write_text(CONFIG)
    (folder / "plain.py").write_text("width = 3\n")
    (folder / "broken.py").write_text("def get_config(:\n")
    (folder / "raising.py").write_text("def get_config():\n    return 1 / 0\n")
    (folder / "wrong.py").write_text("def get_config():\n    return {'seed': 3}\n")
    (folder / "typed.py").write_text(
        "from ctt.config import Config, SplittingConfig\n\n"
        "def get_config():\n    return Config(splitting=SplittingConfig(steps='four'))\n"
    )


def _write_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    for name in ("good.png", "good.jpg"):
        Image.fromarray(pixels).save(folder / name)
        content = (folder / name).read_bytes()
        (folder / name.replace("good", "cut")).write_bytes(content[: len(content) // 2])
    (folder / "text.png").write_text("not a picture")
    (folder / "void.png").write_bytes(b"")
    Image.new("L", (100, 100)).save(folder / "bomb.png")


BAD_INPUT = {
    # What is run.
    "unknown_field": ("train tiny.py --splitting.stesp 3", ["--splitting.stesp", "--splitting.steps"]),
    "unknown_field_of_info": ("info tiny.py --splitting.stesp 3", ["--splitting.stesp", "--splitting.steps"]),
    "text_for_an_integer": ("train tiny.py --splitting.steps many", ["splitting.steps", "integer", "many"]),
    "text_for_a_number": ("train tiny.py --optimizer.learning-rate fast", ["optimizer.learning_rate", "fast"]),
    "two_of_three_values": ("train tiny.py --data.image-shape 8 8", ["data.image_shape", "8 8"]),
    "value_missing": ("train tiny.py --seed", ["seed"]),
    "unknown_scheme": ("train tiny.py --splitting.scheme strnag", ["strnag", "did you mean `strang`"]),
    "unknown_scheme_of_info": ("info tiny.py --splitting.scheme strnag", ["strnag", "did you mean `strang`"]),
    "patch_size_does_not_divide": ("train tiny.py --model.patch-size 3", ["model.patch_size", "got 3"]),
    "heads_do_not_divide_width": ("train tiny.py --model.num-heads 3", ["model.num_heads", "got 3"]),
    "heads_do_not_divide_width_of_info": ("info tiny.py --model.num-heads 3", ["model.num_heads", "got 3"]),
    "no_steps": ("train tiny.py --splitting.steps 0", ["splitting.steps", "got 0"]),
    "negative_horizon": ("train tiny.py --splitting.horizon -1", ["splitting.horizon", "-1"]),
    "horizon_of_nan": ("train tiny.py --splitting.horizon nan", ["splitting.horizon", "nan"]),
    "knots_do_not_divide_steps": ("train tiny.py --splitting.steps 4 --controls.knots 3", ["controls.knots", "got 3"]),
    "negative_seed": ("train tiny.py --seed -1", ["seed", "-1"]),
    "name_with_a_slash": ("train tiny.py --name a/b", ["name", "a/b"]),
    "tangent_with_an_elementwise_map": (
        "train tiny.py --normalization.placement tangent",
        ["normalization.affine", "tangent", "elementwise", "scalar"],
    ),
    "negative_fractions_with_post": (
        "train tiny.py --normalization.placement post --splitting.scheme yoshida4",
        ["yoshida4", "no inverse", "pre or tangent"],
    ),
    "exact_without_a_flow": ("info tiny.py --splitting.substep exact", ["exact", "attention has none"]),
    "word_without_text": ("train tiny.py --splitting.scheme word", ["splitting.word", "Pass both"]),
    "word_of_an_unknown_operator": (
        "train tiny.py --splitting.scheme word --splitting.word atention",
        ["atention", "did you mean `attention`"],
    ),
    "word_whose_fractions_do_not_add_up": (
        "verify tiny.py --splitting.scheme word --splitting.word attention/2",
        ["attention", "sum to 1", "got 0.5"],
    ),
    "unknown_operator": ("train tiny.py --model.operators atention", ["atention", "did you mean `attention`"]),
    "operator_of_a_missing_file": ("train tiny.py --model.operators wind.py:Wind", ["wind.py", "does not exist"]),
    "no_operator": ("train tiny.py --model.operators", ["model.operators"]),
    "operator_twice": ("train tiny.py --model.operators heat heat", ["model.operators", "once"]),
    "diffusion_backwards": (
        "train tiny.py --model.operators attention heat --splitting.scheme yoshida4",
        ["heat cannot", "strang"],
    ),
    "substeps_of_other_operators": (
        "train tiny.py --splitting.operator-substeps euler",
        ["splitting.operator_substeps", "got 1"],
    ),
    "staggered_with_fewer_knots": (
        "train tiny.py --splitting.scheme strang_staggered --controls.knots 1",
        ["controls.knots", "strang_staggered", "got 1"],
    ),
    "literal_with_pre": ("train tiny.py --splitting.scheme literal", ["model.dropout", "literal", "lie"]),
    "refinement_without_a_limit": (
        "train tiny.py --normalization.placement post --splitting.horizon 1",
        ["no limit as the step goes to 0", "Choose"],
    ),
    "certificate_without_a_limit": (
        "verify tiny.py --normalization.placement post",
        ["An order certificate", "no limit as the step goes to 0", "Choose"],
    ),
    "verify_of_a_missing_config": ("verify tniy.py", ["tniy.py", "tiny.py"]),
    "verify_of_fields_without_config": ("verify --splitting.scheme strang", ["ctt verify", "config file"]),
    "verify_with_an_unknown_field": ("verify tiny.py --splitting.stesp 3", ["--splitting.stesp"]),
    "no_optimiser_steps": ("train tiny.py --training.steps 0", ["training.steps", "got 0"]),
    "epochs_below_a_step": (
        "train tiny.py --training.steps None --training.epochs 1e-4",
        ["training.epochs", "0.0001"],
    ),
    "too_many_steps": (f"train tiny.py --training.steps {10**20}", ["training.steps", "2^31"]),
    "too_many_epochs": ("train tiny.py --training.steps None --training.epochs 1e300", ["training.epochs", "1e+300"]),
    "split_seed_too_large": (f"train tiny.py --data.split-seed {10**12}", ["data.split_seed", "2^32"]),
    "mean_of_nan": ("train tiny.py --data.mean nan", ["data.mean", "nan"]),
    "infinite_decay": ("train tiny.py --optimizer.weight-decay inf", ["optimizer.weight_decay", "inf"]),
    "infinite_eps": ("train tiny.py --normalization.eps inf", ["normalization.eps", "inf"]),
    "crop_wider_than_the_image": (
        "train tiny.py --augmentation.crop-padding 9",
        ["augmentation.crop_padding", "got 9"],
    ),
    "other_number_of_classes": ("info tiny.py --data.num-classes 3", ["data.num_classes", "got 3"]),
    "json_is_a_folder": ("train tiny.py --json full", ["--json", "`full`"]),
    "val_size_zero": ("train tiny.py --data.val-size 0", ["data.val_size", "got 0"]),
    "val_size_of_all": ("train tiny.py --data.val-size 1437", ["data.val_size", "1437"]),
    "batch_above_split": ("train tiny.py --training.batch-size 1258", ["training.batch_size", "1257", "1258"]),
    # Commands and config files.
    "unknown_command": ("trian tiny.py", ["`trian`", "did you mean `train`"]),
    "no_config": ("train", ["ctt train", "config file"]),
    "no_config_of_info": ("info --seed 1", ["ctt info", "config file"]),
    "config_missing": ("train tniy.py", ["tniy.py", "tiny.py"]),
    "config_missing_of_info": ("info tniy.py", ["tniy.py", "tiny.py"]),
    "config_is_a_folder": ("train full", ["full"]),
    "config_without_get_config": ("train plain.py", ["plain.py", "get_config"]),
    "config_with_a_syntax_error": ("train broken.py", ["broken.py", "SyntaxError"]),
    "config_that_raises": ("train raising.py", ["raising.py", "ZeroDivisionError"]),
    "config_of_another_type": ("train wrong.py", ["wrong.py", "dict"]),
    "config_with_a_wrong_type": ("train typed.py", ["splitting.steps", "four"]),
    "stray_word": ("train tiny.py other", ["other"]),
    # Data.
    "unknown_data_set": ("train tiny.py --data.name diggits", ["diggits", "digits"]),
    "unknown_data_set_of_known_shape": (
        "train tiny.py --data.name ciphar10 --data.image-shape 32 32 3 --data.num-classes 10 --data.val-size 5",
        ["ciphar10", "did you mean `cifar10`"],
    ),
    "data_set_out_of_reach": (f"train tiny.py {CIFAR} empty", ["cifar10", "tfds build", "connection", "--data.dir"]),
    "data_folder_missing": (f"train tiny.py {CIFAR} nowhere", ["nowhere", "--data.dir"]),
    # Folders of runs.
    "out_holds_a_run": ("train tiny.py --out run", ["`run`", "--resume run"]),
    "out_is_not_empty": ("train tiny.py --out full", ["`full`", "--out"]),
    "out_is_a_file": ("train tiny.py --out file", ["`file`", "--out"]),
    "out_is_below_a_file": ("train tiny.py --out file/run", ["file/run", "--out"]),
    "resume_of_no_run": ("train --resume full", ["`full`", "config.json"]),
    "resume_of_nothing": ("train --resume nowhere", ["`nowhere`", "config.json"]),
    "resume_of_no_run_with_config": ("train tiny.py --resume full", ["`full`", "config.json"]),
    "resume_with_another_config": ("train tiny.py --resume run --model.width 16", ["`run`", "model.width"]),
    "resume_with_another_seed": ("train --resume run --seed 1", ["`run`", "seed"]),
    "resume_with_another_length": ("train --resume run --training.steps 9", ["`run`", "training.steps"]),
    "resume_with_out": ("train --resume run --out other", ["--resume", "--out"]),
    # Evaluation.
    "eval_of_nothing": ("eval nowhere", ["`nowhere`"]),
    "eval_of_a_file": ("eval file", ["`file`"]),
    "eval_without_run": ("eval", ["RUN"]),
    "eval_without_checkpoints": ("eval bare", ["bare/checkpoints", "checkpoint"]),
    "eval_on_an_unknown_split": ("eval run --split tset", ["split", "tset", "did you mean `test`"]),
    "eval_in_empty_batches": ("eval run --batch-size 0", ["batch_size", "got 0"]),
    "eval_with_an_unknown_flag": ("eval run --splt val", ["--splt", "--split"]),
    # Prediction.
    "predict_nothing": ("predict run", ["ctt predict", "image"]),
    "predict_without_run": ("predict", ["RUN"]),
    "predict_without_checkpoints": ("predict bare good.png", ["bare/checkpoints", "checkpoint"]),
    "predict_a_missing_image": ("predict run missing.png", ["missing.png", "exist"]),
    "predict_a_folder": ("predict run full", ["full", "folder"]),
    "predict_a_text": ("predict run text.png", ["text.png", "format"]),
    "predict_an_empty_file": ("predict run void.png", ["void.png", "format"]),
    "predict_half_a_png": ("predict run cut.png", ["cut.png", "whole"]),
    "predict_half_a_jpeg": ("predict run cut.jpg", ["cut.jpg", "whole"]),
    "predict_a_decompression_bomb": ("predict run bomb.png", ["bomb.png", "4096"]),
    "predict_one_bad_of_two": ("predict run good.png text.png", ["text.png"]),
    "predict_the_top_none": ("predict run good.png --top 0", ["top", "got 0"]),
}


@pytest.mark.parametrize(("words", "fragments"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_refused_in_one_sentence_and_nothing_is_written(words, fragments, workplace, capsys):
    before = hash_tree(workplace)
    status = main(words.split())
    message = capsys.readouterr().err.strip()
    assert (status, "\n" in message, "Traceback" in message) == (2, False, False), message
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert REMEDY.search(message), message
    assert hash_tree(workplace) == before


def test_an_empty_out_folder_stays_empty_when_the_data_are_refused(workplace):
    assert main(["train", "tiny.py", "--data.val-size", "1437", "--out", "empty"]) == 2
    assert list((workplace / "empty").iterdir()) == []


def test_ctt_alone_prints_its_usage_and_exits_2(capsys):
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: ctt COMMAND")


@pytest.mark.parametrize("words", ["train tniy.py --debug", "eval nowhere --debug", "info tniy.py --debug"])
def test_debug_shows_the_traceback(words, workplace):
    with pytest.raises(ValueError, match=r"tniy\.py|nowhere"):
        main(words.split())


def test_good_images_of_the_workplace_are_accepted(workplace):
    assert main(["predict", "run", "good.png", "good.jpg"]) == 0
