"""A run repeated with other seeds: what of its result is the config's, and what is chance."""

import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flax import nnx

from ctt.config.compatibility import check_trainable
from ctt.config.error import InputError
from ctt.config.requirement import require
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.data.dataset import Dataset
from ctt.interchange.transplant import transplant
from ctt.models.build import build_model
from ctt.training.checkpoint import CheckpointStore
from ctt.training.devices import agree, is_leader, require_same, wait_for_all
from ctt.training.directory import RunDirectory
from ctt.training.evaluation.spread import measure_spread
from ctt.training.group import GroupDirectory
from ctt.training.interruption import Interrupted, SignalWatch
from ctt.training.loading import load_with_progress
from ctt.training.loop import NonFiniteError, train
from ctt.training.milestone import count_steps
from ctt.training.opening import Resume
from ctt.training.progress import Reporter, SilentReporter
from ctt.training.resume import check_same_config
from ctt.training.run import load_run


def repeat(
    config: Config,
    *,
    out: str | Path,
    num_seeds: int = 1,
    resume: Resume = False,
    init: str | Path | None = None,
    reporter: Reporter | None = None,
    dataset: Dataset | None = None,
) -> dict[str, Any]:
    """Train a config with several seeds, one run after the other, on the same split of the same data.

    The run of a seed is that of `ctt.training.loop.train` with that seed, bit for bit, in ``OUT/seed-SEED``.

    Args:
        config: what to run, with the first seed.
        out: the folder of the runs; new, or with `resume` that of the group to go on with.
        num_seeds: how many seeds: `config.seed` and those after it; ignored with `resume`.
        resume: whether to go on with the runs that are not finished; ``"auto"``: from an older checkpoint where the
            newest is damaged.
        init: a run whose weights are the initial ones of all runs; None: they are drawn from each seed.
        reporter: where progress is shown; None: nowhere.
        dataset: the data, if loaded already.

    Returns:
        The summary, as written to `summary.json`: `seeds`, `runs` (the summary of each finished run, in the order of
        the seeds), `diverged` (the seed and the reason of each run whose loss stopped being a number), and `mean` and
        `std` over the finished runs (the sample's, of n - 1).

    Raises:
        InputError: the config, the data or the folder cannot be used.
        Interrupted: Ctrl-C or SIGTERM came; what is done is saved.
    """
    repetition = _Repetition(resolve_config(config), Path(out), reporter or SilentReporter())
    return repetition.run(dataset, num_seeds, resume=resume, init=init)


class _Repetition:
    """One session of one group."""

    def __init__(self, config: Config, out: Path, reporter: Reporter):
        self.config, self.directory, self.reporter = config, GroupDirectory(out), reporter

    def run(
        self, dataset: Dataset | None, num_seeds: int, *, resume: Resume, init: str | Path | None
    ) -> dict[str, Any]:
        first = self.config.seed
        if resume:
            check_same_config(self.directory, self.config)
        else:
            require(num_seeds >= 1, "seeds", "be >= 1", num_seeds, remedy="Pass --seeds 3, say.")
            range_ = f"keep {first} + seeds <= 2^32, the number of seeds"
            require(first + num_seeds <= 2**32, "seeds", range_, num_seeds, remedy="Pass a smaller --seed.")
            self.directory.check_free()
            self._refuse_early(init)
        seeds = self.directory.read_group()["seeds"] if resume else list(range(first, first + num_seeds))
        if resume and all(self._is_finished(seed) for seed in seeds):
            self.reporter.say("The runs of all seeds are finished: nothing is left to do.")
            return self._summarise(seeds, [])
        source = None if init is None or resume else _describe_source(init)
        dataset = dataset or load_with_progress(self.config, self.reporter)
        count_steps(self.config.training, len(dataset.train.labels))  # Refuses before the folder is made.
        if resume:
            self._check_unchanged(dataset)
        else:
            require_same({"the data": dataset.fingerprint})  # And every process has looked whether the folder is free.
            if is_leader():
                self.directory.begin(self.config, seeds, {"data_fingerprint": dataset.fingerprint, "init": source})
            wait_for_all("making the folder of the runs", timeout=self.config.devices.timeout)
        source = self.directory.read_group()["init"]
        if source is not None:
            self.reporter.say("All seeds begin with the same weights; order of the data and augmentation differ.")
        diverged = []
        for position, seed in enumerate(seeds):
            self.reporter.say(f"Seed {seed} ({position + 1} of {len(seeds)})")
            if self._is_finished(seed):
                self.reporter.say("The run is finished: nothing is left to do.")
                continue
            try:
                SignalWatch.latest = None
                self._train(seed, dataset, source, resume=resume)
                if SignalWatch.latest is not None and position + 1 < len(seeds):
                    raise Interrupted(SignalWatch.latest, "")  # In the last step, which was not worth a stop.
            except NonFiniteError as error:
                self.reporter.say(f"Seed {seed} diverged. {error}")
                diverged.append({"seed": seed, "reason": str(error)})
            except Interrupted as error:
                text = f"Interrupted in the run of seed {seed}; everything up to there is saved."
                raise Interrupted(error.signum, f"{text} {self._way_on(seeds)}") from error
            except KeyboardInterrupt as error:  # Twice, or where no step is under way.
                text = f"Stopped at once in the run of seed {seed}; its newest checkpoint, if there is one, is kept."
                raise Interrupted(signal.SIGINT, f"{text} {self._way_on(seeds)}") from error
        return self._summarise(seeds, diverged)

    def _refuse_early(self, init: str | Path | None) -> None:
        """Refuse what the model refuses before the data are read and the folder is made."""
        check_trainable(self.config)
        if init is None:
            nnx.eval_shape(lambda: build_model(self.config))
        else:
            source = load_run(init)
            transplant(source.config, source.model, self.config)

    def _is_finished(self, seed: int) -> bool:
        return (self.directory.seed_folder(seed) / "summary.json").is_file()

    def _check_unchanged(self, dataset: Dataset) -> None:
        """Check that the runs still to begin would get the data of those that have begun."""
        known = self.directory.read_group()["data_fingerprint"]
        if known != dataset.fingerprint:
            raise InputError(
                f"`{self.directory.path}` was begun on data with the fingerprint {known[:12]}, got "
                f"{dataset.fingerprint[:12]}. Pass --data.dir of the same data."
            )

    def _train(self, seed: int, dataset: Dataset, source: dict[str, Any] | None, *, resume: Resume) -> None:
        folder, config = self.directory.seed_folder(seed), replace(self.config, seed=seed)
        (is_begun,) = agree(is_leader() and _clear_false_start(folder, has_source=source is not None))
        if not is_begun and source is not None and _describe_source(source["path"]) != source:
            raise InputError(
                f"`{source['path']}`, whose weights are the initial ones of `{self.directory.path}`, must be as it was "
                f"(run {source['run_id']} at step {source['step']}). Restore it, or start again with another --out."
            )
        init = None if is_begun or source is None else source["path"]
        how = resume or True if is_begun else False
        train(config, out=folder, resume=how, init=init, reporter=self.reporter, dataset=dataset)

    def _way_on(self, seeds: Sequence[int]) -> str:
        num_finished = sum(map(self._is_finished, seeds))
        return (
            f"{num_finished} of {len(seeds)} runs are finished. Go on with: ctt train --resume "
            f"{shlex.quote(str(self.directory.path))}"
        )

    def _summarise(self, seeds: Sequence[int], diverged: list[dict[str, Any]]) -> dict[str, Any]:
        finished = [seed for seed in seeds if self._is_finished(seed)]
        runs = [RunDirectory(self.directory.seed_folder(seed)).read_json("summary.json") for seed in finished]
        mean, std = measure_spread(runs, measured_names(runs))
        summary = {"seeds": list(seeds), "runs": runs, "diverged": diverged, "mean": mean, "std": std}
        if is_leader():
            self.directory.write_json("summary.json", summary)
        return summary


def measured_names(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of what varies from seed to seed: losses, accuracies, and the throughput.

    Args:
        runs: the summaries of some runs.
    """
    names = dict.fromkeys(name for run in runs for name in run)
    return [name for name in names if name.endswith(("loss", "accuracy")) or name == "images_per_second"]


def _describe_source(path: str | Path) -> dict[str, Any]:
    """Return which weights a run has now."""
    directory = RunDirectory(path)
    directory.read_config()  # Says of a folder that is no run what it is.
    run_id = directory.read_manifest()["run_id"]
    step = CheckpointStore(directory.checkpoints, run_id=run_id).latest_step()
    return {"path": str(Path(path).resolve()), "run_id": run_id, "step": step}


def _clear_false_start(folder: Path, *, has_source: bool) -> bool:
    """Return whether a run has begun in a folder; one that was killed before it could be resumed is removed.

    Args:
        folder: the run directory of a seed.
        has_source: whether its initial weights, another run's, must have been saved before it can be resumed.
    """
    if not folder.exists():
        return False
    names = {path.name.removesuffix(".partial") for path in folder.iterdir()}
    saved = folder / "checkpoints"
    has_weights = saved.is_dir() and any(path.name.isdigit() for path in saved.iterdir())
    is_run = (folder / "config.json").is_file()
    if is_run and (has_weights or not has_source):
        return True
    if not is_run and not names <= {"config.json", "manifest.json"}:
        raise InputError(f"`{folder}` must hold a run or nothing, and has no config.json. Move it away.")
    shutil.rmtree(folder)
    return False
