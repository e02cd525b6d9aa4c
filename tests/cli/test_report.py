"""``ctt report``: of runs that are finished, interrupted, imported, moved, or without their data."""

import json
import os
import re
import shutil
from html.parser import HTMLParser

import pytest
from tiny_run import hash_tree, read_summary

from ctt.cli.main import main


@pytest.fixture
def run_copy(finished_run, tmp_path):
    """A copy of the finished run, to be changed."""
    return shutil.copytree(finished_run, tmp_path / "run")


def change(path, **values):
    content = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps(content))


class Tags(HTMLParser):
    """The tags of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def report(run, *words):
    assert main(["report", str(run), *map(str, words)]) == 0


def test_a_finished_run_has_curves_a_batch_and_a_page(finished_run, tmp_path, capsys):
    before = hash_tree(finished_run)
    out, values = tmp_path / "out", tmp_path / "report.json"
    report(finished_run, "--out", out, "--json", values)
    files = [out / "figures" / "curves.svg", out / "figures" / "batch.png", out / "report.html"]
    assert json.loads(values.read_text())["files"] == [str(path) for path in files]
    assert all(str(path) in capsys.readouterr().out or path.stat().st_size > 1000 for path in files)
    assert hash_tree(finished_run) == before
    page = (out / "report.html").read_text()
    summary = read_summary(finished_run)
    for text in ("finished", f"{summary['test_accuracy']:.2%}", summary["params_sha256"], summary["data_fingerprint"]):
        assert text in page


def test_the_page_asks_nothing_of_the_network(run_copy):
    report(run_copy)
    tags = Tags((run_copy / "report.html").read_text()).found
    sources = [attributes[name] for _, attributes in tags for name in ("src", "href") if name in attributes]
    assert len(sources) == 2
    assert all(source.startswith("data:image/") for source in sources)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in tags}


def test_what_others_wrote_is_escaped(run_copy):
    bad = "</td><script>alert(1)</script>"
    change(run_copy / "config.json", name="a&b<i>c")
    manifest = json.loads((run_copy / "manifest.json").read_text())
    change(run_copy / "manifest.json", command=["ctt", bad], class_names=[f"$_{bad}"] * len(manifest["class_names"]))
    report(run_copy, "--no-batch")
    page = (run_copy / "report.html").read_text()
    assert "<script" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "a&amp;b&lt;i&gt;c" in page


def test_it_is_the_same_report_each_time(run_copy):
    report(run_copy)
    first = hash_tree(run_copy)
    report(run_copy)
    assert hash_tree(run_copy) == first


def test_an_unfinished_run_shows_how_far_it_is(run_copy):
    (run_copy / "summary.json").unlink()
    lines = (run_copy / "metrics.jsonl").read_text().splitlines()[:2]
    (run_copy / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 6, "spl')
    report(run_copy)
    page = (run_copy / "report.html").read_text()
    assert f"unfinished, step {json.loads(lines[-1])['step']}" in page
    assert (run_copy / "figures" / "curves.svg").exists()


@pytest.mark.parametrize("kept", [("config.json",), ("config.json", "manifest.json")])
def test_a_run_that_has_barely_begun_has_a_page_all_the_same(run_copy, kept, capsys):
    for path in run_copy.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    report(run_copy)
    assert "the run has logged no measures" in capsys.readouterr().out
    assert "unfinished, step 0" in (run_copy / "report.html").read_text()
    assert not (run_copy / "figures" / "curves.svg").exists()


def test_an_imported_run_has_a_page(run_copy, capsys):
    for name in ("summary.json", "metrics.jsonl"):
        (run_copy / name).unlink()
    change(run_copy / "manifest.json", data_fingerprint=None, split_sizes=None, origin={"file": "a.safetensors"})
    report(run_copy)
    assert "the run has seen no data yet" in capsys.readouterr().out
    page = (run_copy / "report.html").read_text()
    assert "imported" in page
    assert "a.safetensors" in page


def test_without_its_data_a_run_is_reported_without_a_batch(run_copy, tmp_path, capsys):
    report(run_copy)
    config = json.loads((run_copy / "config.json").read_text())
    change(run_copy / "config.json", data={**config["data"], "name": "cifar10", "image_shape": [8, 8, 1]})
    report(run_copy, "--data.dir", tmp_path)
    out = capsys.readouterr().out
    assert "There is no picture of a batch, since the data are not at hand" in out
    assert re.search(r"no picture of a batch", (run_copy / "report.html").read_text())
    assert not (run_copy / "figures" / "batch.png").exists()  # That of the first report would be out of place.


def test_other_pixels_make_no_batch(run_copy, capsys):
    change(run_copy / "manifest.json", data_fingerprint="0" * 64)
    report(run_copy)
    assert "fingerprint differs" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_that_cannot_be_written_needs_another_place(run_copy, tmp_path, capsys):
    run_copy.chmod(0o500)
    try:
        assert main(["report", str(run_copy)]) == 2
        assert "Pass --out DIR." in capsys.readouterr().err
        report(run_copy, "--out", tmp_path / "elsewhere")
    finally:
        run_copy.chmod(0o700)


def test_wrong_places_are_refused(finished_run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for words, message in (
        ([str(tmp_path)], "is not a run directory"),
        ([str(finished_run), "--out", str(tmp_path / "file")], "must be a folder that can be written"),
        ([str(finished_run), "--json", str(finished_run / "report.html")], "must stand apart"),
    ):
        assert main(["report", *words]) == 2
        assert message in capsys.readouterr().err
