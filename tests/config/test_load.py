import dataclasses

import pytest

from ctt.config import Config, InputError, load_config
from ctt.config.serialize import flatten_config


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a config file and returns its path."""

    def write_file(body, name="mine.py"):
        path = tmp_path / name
        path.write_text(f"from ctt.config import *\n{body}\n")
        return path

    return write_file


@pytest.fixture
def plain(write):
    """A config file with nothing but defaults."""
    return write("def get_config(): return Config()")


def test_a_config_is_named_after_its_file(plain):
    assert load_config(plain).name == "mine"


def test_a_name_in_the_file_is_kept(write):
    assert load_config(write("def get_config(): return Config(name='other')")).name == "other"


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--seed", "5"], "seed", 5),
        (["--name", "run-1"], "name", "run-1"),
        (["--optimizer.learning-rate", "3e-4"], "optimizer.learning_rate", 3e-4),
        (["--optimizer.learning_rate", "3e-4"], "optimizer.learning_rate", 3e-4),
        (["--optimizer.learning-rate=3e-4"], "optimizer.learning_rate", 3e-4),
        (["--splitting.horizon", "2"], "splitting.horizon", 2.0),
        (["--splitting.scheme", "strang"], "splitting.scheme", "strang"),
        (["--optimizer.clip-norm", "None"], "optimizer.clip_norm", None),
        (["--augmentation.flip"], "augmentation.flip", True),
        (["--augmentation.no-flip"], "augmentation.flip", False),
        (["--model.no-feedforward-bias"], "model.feedforward_bias", False),
        (["--data.image-shape", "16", "16", "3"], "data.image_shape", (16, 16, 3)),
        (["--data.mean", "0.25"], "data.mean", (0.25,)),
        (["--model.attention-biases", "query", "output"], "model.attention_biases", ("query", "output")),
        (["--training.steps", "10"], "training.steps", 10),
    ],
)
def test_an_override_of_each_type_is_applied(plain, words, path, value):
    assert flatten_config(load_config(plain, words))[path] == value


def test_the_last_of_two_overrides_wins(plain):
    assert load_config(plain, ["--seed", "1", "--seed", "2"]).seed == 2


def test_fields_without_an_override_are_those_of_the_file(write):
    path = write("def get_config(): return Config(seed=9, splitting=SplittingConfig(steps=6, scheme='strang'))")
    config = load_config(path, ["--splitting.steps", "3"])
    assert (config.seed, config.splitting.scheme, config.splitting.steps) == (9, "strang", 3)


def test_derived_fields_follow_the_overrides(plain):
    assert load_config(plain, ["--splitting.steps", "7"]).splitting.horizon == 7.0


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [
        ("--splitting.schem", "--splitting.scheme"),
        ("--optimiser.learning-rate", "--optimizer.learning-rate"),
        ("--model.widht", "--model.width"),
        ("--sed", "--seed"),
    ],
)
def test_an_unknown_flag_shows_the_nearest(plain, flag, nearest):
    with pytest.raises(InputError, match=rf"`{flag}` is not a field: did you mean {nearest}\?"):
        load_config(plain, [flag, "1"])


def test_an_unknown_flag_that_is_near_nothing_points_to_the_help(plain):
    with pytest.raises(InputError, match=r"`--zzzzqqq` is not a field\. Pass --help"):
        load_config(plain, ["--zzzzqqq", "1"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--splitting.scheme", "strnag"],
            "`splitting.scheme` must be a known name, got `strnag`.*did you mean `strang`",
        ),
        (["--seed", "one"], "`seed` must be an integer, got `one`"),
        (["--seed", "1.5"], "`seed` must be an integer, got `1.5`"),
        (["--optimizer.learning-rate", "fast"], "`optimizer.learning_rate` must be a number, got `fast`"),
        (["--data.image-shape", "8", "8"], "`data.image_shape` must be 3 integers or None, got `8 8`"),
        (["--training.steps", "many"], "`training.steps` must be an integer or None, got `many`"),
    ],
)
def test_an_override_of_the_wrong_type_is_refused(plain, words, message):
    with pytest.raises(InputError, match=message):
        load_config(plain, words)


def test_a_stray_word_is_refused(plain):
    with pytest.raises(InputError, match="`stray` is not expected here"):
        load_config(plain, ["stray"])


def test_a_missing_file_shows_the_nearest(plain):
    with pytest.raises(InputError, match=r"mien\.py` does not exist. Did you mean `.*mine\.py`"):
        load_config(plain.with_name("mien.py"))


def test_a_missing_file_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"does not exist\. Give the path of a Python file"):
        load_config(tmp_path / "no" / "file.py")


@pytest.mark.parametrize("body", ["", "get_config = 3"])
def test_a_file_without_get_config_is_refused(write, body):
    with pytest.raises(InputError, match=r"must define a function `get_config\(\)`"):
        load_config(write(body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def get_config(): return 1 / 0", "raised ZeroDivisionError: division by zero"),
        ("raise RuntimeError('no')", "raised RuntimeError: no"),
        ("def get_config(: pass", "raised SyntaxError"),
        ("import no_such_module_anywhere", "raised ModuleNotFoundError"),
        ("def get_config(): return Config(sed=1)", "raised TypeError: .*sed"),
    ],
)
def test_a_file_that_raises_is_refused_with_its_error(write, body, message):
    with pytest.raises(InputError, match=rf"{message}.*Mend the file"):
        load_config(write(body))


@pytest.mark.parametrize(("result", "kind"), [("None", "NoneType"), ("{}", "dict"), ("ModelConfig()", "ModelConfig")])
def test_a_result_of_another_type_is_refused(write, result, kind):
    with pytest.raises(InputError, match=rf"must return a ctt\.config\.Config, got {kind}"):
        load_config(write(f"def get_config(): return {result}"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("seed='1'", "`seed` must be of type int, got '1'"),
        ("seed=True", "`seed` must be of type int, got True"),
        ("splitting=SplittingConfig(steps=2.0)", r"`splitting\.steps` must be of type int, got 2\.0"),
        (
            "splitting=SplittingConfig(scheme='strnag')",
            r"`splitting\.scheme` must be a known name.*did you mean `strang`",
        ),
        ("data=DataConfig(image_shape=(8, 8))", r"`data\.image_shape` must be a list of 3 values"),
        ("augmentation=AugmentationConfig(flip=1)", r"`augmentation\.flip` must be of type bool, got 1"),
        ("optimizer=OptimizerConfig(learning_rate='fast')", r"`optimizer\.learning_rate` must be of type float"),
        ("model=3", "`model` must be an object, got 3"),
        ("model=None", "`model` must be an object, got None"),
    ],
)
def test_a_field_of_the_wrong_type_in_a_file_is_refused(write, call, message):
    with pytest.raises(InputError, match=message):
        load_config(write(f"def get_config(): return Config({call})"))


def test_a_whole_number_is_taken_for_a_float(write):
    config = load_config(write("def get_config(): return Config(splitting=SplittingConfig(horizon=2))"))
    assert isinstance(config.splitting.horizon, float)


def test_a_file_may_import_its_neighbour(write):
    write("SEED = 11", "neighbour_of_mine.py")
    assert (
        load_config(write("from neighbour_of_mine import SEED\ndef get_config(): return Config(seed=SEED)")).seed == 11
    )


def test_a_neighbour_does_not_shadow_its_namesake_in_another_folder(tmp_path):
    seeds = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "base_of_mine.py").write_text(f"SEED = {seed}\n")
        text = (
            "from base_of_mine import SEED\nfrom ctt.config import Config\ndef get_config(): return Config(seed=SEED)\n"
        )
        (folder / "mine.py").write_text(text)
        seeds.append(load_config(folder / "mine.py").seed)
    assert seeds == [1, 2]


def test_a_loaded_config_is_resolved(plain):
    config = load_config(plain)
    assert None not in (config.splitting.horizon, config.controls.knots, *dataclasses.astuple(config.data)[2:7])


def test_the_defaults_are_a_usable_config(plain):
    assert load_config(plain) == load_config(plain, [])
    assert isinstance(load_config(plain), Config)
