"""SIGTERM ends a command even where it comes inside a callback that drops what is raised."""

import subprocess
import sys

SCRIPT = """
import gc, os, signal, time
import ctt.cli.main as main

class Command:
    @staticmethod
    def run(words):
        gc.callbacks.append(lambda *arguments: os.kill(os.getpid(), signal.SIGTERM))
        gc.collect()
        time.sleep(20)
        return 0

main.importlib.import_module = lambda name: Command
main.main(["info"])
"""


def test_sigterm_in_a_callback_is_not_lost():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (143, "")
