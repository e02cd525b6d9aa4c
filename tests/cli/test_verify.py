"""`ctt verify` prints every check, writes it as JSON, and exits with 1 where something does not hold."""

import dataclasses
import json

import pytest

import ctt.certificates
from ctt.certificates import Check
from ctt.cli.main import main
from ctt.splitting import SUBSTEPS

HOLDS = Check("a claim", "holds", "1e-16", "for a reason")
FAILS = Check("another claim", "does not hold", "0.5")
OPEN = Check("a third claim", "not resolved", "two grids")


@pytest.fixture
def few_checks(monkeypatch):
    """Return a function that makes the checks that need no config a given list."""

    def choose(*checks):
        monkeypatch.setattr(ctt.certificates, "check_table", lambda: iter(checks))
        for name in ("check_recoveries", "check_projections", "check_meshes"):
            monkeypatch.setattr(ctt.certificates, name, lambda: iter(()))

    return choose


@pytest.mark.parametrize(
    ("checks", "status", "outcome"),
    [
        ((HOLDS, HOLDS), 0, "holds"),
        ((HOLDS, OPEN), 0, "not resolved"),
        ((HOLDS, FAILS, OPEN), 1, "does not hold"),
    ],
    ids=["all hold", "one is open", "one fails"],
)
def test_the_exit_status_says_whether_something_does_not_hold(few_checks, tmp_path, checks, status, outcome):
    few_checks(*checks)
    assert main(["verify", "--json", str(tmp_path / "verify.json")]) == status
    assert json.loads((tmp_path / "verify.json").read_text())["outcome"] == outcome


def test_what_is_printed_is_what_is_written(few_checks, tmp_path, capsys):
    few_checks(HOLDS, FAILS, OPEN)
    main(["verify", "--json", str(tmp_path / "verify.json")])
    printed = capsys.readouterr().out
    values = json.loads((tmp_path / "verify.json").read_text())
    assert values["counts"] == {"holds": 1, "does not hold": 1, "not resolved": 1}
    for check in values["checks"]:
        assert check["name"] in printed
        assert check["summary"] in printed
        assert check["reason"] in printed


@pytest.fixture(scope="module")
def verified(config_file, tmp_path_factory):
    """The result of `ctt verify` on the tiny run's config, in full."""
    path = tmp_path_factory.mktemp("verify") / "verify.json"
    status = main(["verify", str(config_file), "--json", str(path)])
    return status, json.loads(path.read_text())


def test_a_config_is_verified(verified):
    status, values = verified
    assert (status, values["outcome"]) == (0, "holds")


def test_the_order_of_the_config_comes_first_with_its_errors(verified):
    order = verified[1]["checks"][0]
    assert order["name"] == "order of lie + euler, pre"
    assert order["values"]["promised"] == 1
    assert len(order["values"]["errors"]) >= 4


@pytest.mark.parametrize("part", ["Vaswani", "ViT", "nearest point", "Gauss-Legendre"])
def test_recoveries_projections_and_meshes_are_verified_too(verified, part):
    assert any(part in check["name"] for check in verified[1]["checks"])


def test_an_order_that_does_not_hold_exits_with_1(config_file, monkeypatch, few_checks, capsys):
    few_checks()
    false = dataclasses.replace(SUBSTEPS["midpoint"], advance=SUBSTEPS["euler"].advance)
    monkeypatch.setitem(SUBSTEPS, "midpoint", false)
    words = ["--splitting.scheme", "strang", "--splitting.substep", "midpoint", "--model.activation", "gelu"]
    assert main(["verify", str(config_file), *words]) == 1
    assert "DOES NOT HOLD" in capsys.readouterr().out


def test_the_reason_of_a_capped_order_is_printed_in_words(config_file, few_checks, capsys):
    few_checks()
    words = "--splitting.scheme strang --splitting.substep midpoint --model.activation gelu"
    words += " --normalization.placement post --normalization.affine none"
    assert main(["verify", str(config_file), *words.split()]) == 0
    assert "the placement post bolts a projection on after each substep" in capsys.readouterr().out
