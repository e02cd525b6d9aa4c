from pathlib import Path

from ctt.config.cache import cache_folder


def test_the_variables_decide_in_their_order(monkeypatch):
    monkeypatch.setenv("CTT_CACHE_DIR", "/a/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == Path("/a/b")
    monkeypatch.delenv("CTT_CACHE_DIR")
    assert cache_folder() == Path("/c/ctt")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/x")
    assert cache_folder() == Path("/home/x/.cache/ctt")
