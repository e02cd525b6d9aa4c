"""The folder of a group: runs of one config that differ by their seed."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctt.config.error import InputError
from ctt.config.schema import Config
from ctt.config.serialize import config_from_dict, config_to_dict
from ctt.training.directory import GROUP_FILE, RunDirectory, without_processes


class GroupDirectory(RunDirectory):
    """The files of a group: `group.json`, `seed-0/`, `seed-1/`, ... (runs), and at the end `summary.json`."""

    @staticmethod
    def is_group(path: str | Path | None) -> bool:
        """Return whether a folder holds a group.

        Args:
            path: the folder; None is none.
        """
        return path is not None and (Path(path) / GROUP_FILE).is_file()

    def check_free(self) -> None:
        """Check that a new group may be put into the folder.

        Raises:
            InputError: the folder holds something already.
        """
        if self.is_group(self.path):
            raise InputError(
                f"`{self.path}` already holds the runs of several seeds. Go on with them by --resume "
                f"{shlex.quote(str(self.path))}, or choose another --out."
            )
        super().check_free()

    def begin(self, config: Config, seeds: Sequence[int], origin: dict[str, Any]) -> None:
        """Make the folder and write what makes it a group.

        Args:
            config: a resolved config, with the first seed.
            seeds: the seeds.
            origin: what the runs share beside their config, as JSON values.

        Raises:
            InputError: the folder holds something already, or cannot be made.
        """
        self.check_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_json(
                GROUP_FILE, {"seeds": list(seeds), **origin, "config": config_to_dict(without_processes(config))}
            )
        except OSError as error:
            raise InputError(f"`{self.path}` cannot be written ({error.strerror}). Choose another --out.") from error

    def read_group(self) -> dict[str, Any]:
        """Return what `begin` wrote.

        Raises:
            InputError: the file cannot be read, or lacks something that every group has.
        """
        values = self.read_json(GROUP_FILE)
        seeds, fingerprint, init = values.get("seeds"), values.get("data_fingerprint"), values.get("init")
        wanted = {
            "seeds, whole numbers in [0, 2^32), each once": isinstance(seeds, list)
            and bool(seeds)
            and all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
            and len(set(seeds)) == len(seeds),
            "data_fingerprint, a text": isinstance(fingerprint, str),
            "init, null or an object with a path, a run_id and a step": init is None
            or (isinstance(init, dict) and {"path", "run_id", "step"} <= set(init)),
            "config, an object": isinstance(values.get("config"), dict),
        }
        for description, holds in wanted.items():
            if not holds:
                raise InputError(f"`{self.path / GROUP_FILE}` must have {description}. Restore the file.")
        return values

    def read_config(self) -> Config:
        """Return the resolved config of the runs, with the first seed.

        Raises:
            InputError: see `read_group`.
        """
        values = self.read_group()
        return replace(config_from_dict(values["config"]), seed=values["seeds"][0])

    def seed_folder(self, seed: int) -> Path:
        """Return the run directory of a seed.

        Args:
            seed: one of the seeds.
        """
        return self.path / f"seed-{seed}"
