"""The cache of compiled programs: who decides where it is, and what damage, other processes and its size do to it."""

import os
import subprocess
import sys
import time
import zlib

import jax
import pytest

from ctt.training.compilation import enable_compilation_cache, tidy_programs, visible_cores

CORES = f"{visible_cores()}-cores"

PROGRAM = """
import sys
from pathlib import Path
from ctt.training.compilation import enable_compilation_cache
assert "jax" not in sys.modules
note = enable_compilation_cache(*map(Path, sys.argv[1:]))
import jax, jax.numpy as jnp
print(note or jax.config.jax_compilation_cache_dir)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("/cache_hits") else None)
print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((8, 8))).sum())
print(len(hits))
"""


@pytest.fixture
def environment(monkeypatch):
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "CTT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def start(*words, **variables):
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=os.environ | variables, stdout=pipe, stderr=pipe, text=True)


def finish(process):
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    place, value, hits = output.split("\n")[:3]
    return place, value, int(hits), errors


def run(*words, **variables):
    return finish(start(*words, **variables))


def programs(folder):
    return sorted(folder.rglob("*-cache"))


def write_program(folder, name, size, *, age=0.0):
    path = folder / f"{name}-cache"
    path.write_bytes(zlib.compress(os.urandom(size)))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_a_damaged_program_is_compiled_again(environment, tmp_path):
    folder = tmp_path / "xla"
    place, value, hits, errors = run(CTT_CACHE_DIR=str(tmp_path))
    assert (place, hits, errors) == (str(folder / CORES), 0, "")
    tidy_programs(folder)
    for path in programs(folder):  # Damaged after it was looked at: jax reads it, warns and compiles.
        path.write_bytes(path.read_bytes()[:-100])
        os.utime(path, (0, 0))
    _, again, hits, errors = run(CTT_CACHE_DIR=str(tmp_path))
    assert (again, hits) == (value, 0)
    assert "Error reading persistent compilation cache entry" in errors
    for path in programs(folder):  # Cut short by a kill: found at the start.
        path.write_bytes(path.read_bytes()[:-100])
    _, again, hits, errors = run(CTT_CACHE_DIR=str(tmp_path))
    assert (again, hits, errors) == (value, 0, "")


def test_two_processes_may_write_at_once_and_a_third_compiles_nothing(environment, tmp_path):
    processes = [start(tmp_path / "xla") for _ in range(2)]
    first, second = (finish(process) for process in processes)
    assert first[1] == second[1]
    assert (first[3], second[3]) == ("", "")
    _, value, hits, errors = run(tmp_path / "xla")
    assert (value, errors) == (first[1], "")
    assert hits > 0


def test_the_users_folder_is_kept(environment, tmp_path):
    environment.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    before = jax.config.values["jax_compilation_cache_dir"]
    assert enable_compilation_cache(tmp_path / "ours") is None
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "mine")
    assert jax.config.values["jax_compilation_cache_dir"] == before


def test_jax_that_is_running_is_told(environment, tmp_path):
    before = jax.config.values["jax_compilation_cache_dir"]
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        assert enable_compilation_cache(tmp_path / "first") is None
        assert enable_compilation_cache(tmp_path / "second") is None  # Somebody has decided already.
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "first" / CORES)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_a_number_of_cores_has_its_own_programs(environment, tmp_path):
    before = jax.config.values["jax_compilation_cache_dir"]
    environment.setattr("ctt.training.compilation.visible_cores", lambda: 96)
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        enable_compilation_cache(tmp_path)
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "96-cores")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_folder_that_cannot_be_made_is_named(environment, tmp_path):
    (tmp_path / "file").write_text("in the way")
    note = enable_compilation_cache(tmp_path / "file" / "xla")
    if jax.config.values["jax_compilation_cache_dir"] is None:
        assert note is not None
        assert note.startswith(f"Compiled programs are not kept: `{tmp_path}/file/xla` cannot be written to.")
    place, _, hits, errors = run(tmp_path / "file" / "xla")
    assert place.startswith("Compiled programs are not kept")
    assert (hits, errors) == (0, "")


def test_the_programs_used_longest_ago_go_first(tmp_path):
    for age in range(4):
        folder = tmp_path / f"{1 + age % 2}-cores"
        folder.mkdir(exist_ok=True)
        write_program(folder, f"program{age}", 1000, age=3600.0 * age)
    tidy_programs(tmp_path, max_bytes=2500)
    assert sorted(path.name for path in programs(tmp_path)) == ["program0-cache", "program1-cache"]


def test_whole_programs_stay_and_others_go(tmp_path):
    whole, cut, garbage, empty = (write_program(tmp_path, name, 1000) for name in ("whole", "cut", "garbage", "empty"))
    cut.write_bytes(cut.read_bytes()[:-1])
    garbage.write_bytes(b"garbage")
    empty.write_bytes(b"")
    other = tmp_path / "notes.txt"
    other.write_text("not a program")
    tidy_programs(tmp_path)
    assert programs(tmp_path) == [whole]
    assert other.exists()


def test_a_program_is_read_once(tmp_path):
    path = write_program(tmp_path, "old", 1000, age=10.0)
    tidy_programs(tmp_path)
    path.write_bytes(b"damaged later")
    os.utime(path, (time.time() - 10,) * 2)
    tidy_programs(tmp_path)
    assert path.exists()  # Jax itself will find out.


def test_no_folder_is_made_before_it_is_needed(environment, tmp_path):
    tidy_programs(tmp_path / "xla")
    assert not (tmp_path / "xla").exists()
