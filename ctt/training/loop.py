"""The training loop on the host: reads top to bottom, from data to summary."""

import math
import shlex
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ctt.config.compatibility import check_trainable
from ctt.config.error import InputError, RunStoppedError
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config, TrainingConfig
from ctt.data.dataset import Dataset
from ctt.data.sampler import batch_indices, steps_per_epoch
from ctt.data.source import load_dataset
from ctt.interchange.transplant import transplant
from ctt.models.build import build_model, count_parameters
from ctt.models.classifier import Classifier
from ctt.training.certificate import describe_certificate
from ctt.training.checkpoint import CheckpointStore
from ctt.training.clock import Clock
from ctt.training.digest import tree_sha256
from ctt.training.directory import RunDirectory
from ctt.training.evaluate import build_evaluator
from ctt.training.interruption import Interrupted, SignalWatch, watch_signals
from ctt.training.manifest import build_manifest, environment_changes
from ctt.training.meter import build_splitting_meter
from ctt.training.progress import Reporter, SilentReporter
from ctt.training.resume import check_same_config
from ctt.training.run import Run, load_run
from ctt.training.state import Batch, TrainState, state_from_record, state_record, weights_record
from ctt.training.step import Metrics, build_update


class NonFiniteError(RunStoppedError):
    """The loss or the gradient stopped being a number; the last good checkpoint is kept."""

    exit_status = 1


def train(
    config: Config,
    *,
    out: str | Path,
    resume: bool = False,
    init: str | Path | None = None,
    reporter: Reporter | None = None,
    dataset: Dataset | None = None,
) -> dict[str, Any]:
    """Train a model to the end of its run and measure it.

    Args:
        config: what to run.
        out: the run directory; new, or with `resume` that of the run to go on with.
        resume: whether to go on from the newest checkpoint, bit for bit on the same kind of machine.
        init: a run whose weights are the initial ones; None: they are drawn from the seed.
        reporter: where progress is shown; None: nowhere.
        dataset: the data, if loaded already.

    Returns:
        The summary, as written to `summary.json`.

    Raises:
        InputError: the config, the data or the folder cannot be used.
        Interrupted: Ctrl-C or SIGTERM came; a checkpoint of the last finished step was saved.
        NonFiniteError: a loss or gradient is not finite; the last good checkpoint is kept.
    """
    source = None if init is None else load_run(init)
    return _Training(resolve_config(config), Path(out), reporter or SilentReporter(), source).run(
        dataset, resume=resume
    )


def count_steps(config: TrainingConfig, num_train: int) -> int:
    """Return the length of a run in optimiser steps.

    Args:
        config: the loop's config.
        num_train: size of the training split.

    Raises:
        InputError: the batch is larger than the training split, or the run has no step.
    """
    per_epoch = steps_per_epoch(num_train, config.batch_size)
    total = config.steps or round(config.epochs * per_epoch)
    if not 1 <= total < 2**31:
        raise InputError(
            f"`training.epochs` must give at least one step and fewer than 2^31, got {config.epochs}. Pass another "
            "number, or --training.steps."
        )
    return total


class _Training:
    """One session of one run: what the phases of `run` share."""

    def __init__(self, config: Config, out: Path, reporter: Reporter, source: Run | None):
        self.config, self.reporter, self.source = config, reporter, source
        self.directory = RunDirectory(out)
        self.clock = Clock()
        self.pending: list[Metrics] = []
        self.window: list[dict[str, float]] = []
        self.last_train: dict[str, float] = {}
        self.step, self.measured_step = 0, -1

    def run(self, dataset: Dataset | None, *, resume: bool) -> dict[str, Any]:
        if resume:
            check_same_config(self.directory, self.config)
        else:
            self.directory.check_free()  # Before the data are read, which may take long.
        check_trainable(self.config)
        self.model, notes = self._build_model()  # Before the data too: what the model refuses is said at once.
        dataset = dataset or load_with_progress(self.config, self.reporter)
        self.dataset = dataset
        self.total = count_steps(self.config.training, len(dataset.train.labels))
        self.state, self.update = build_update(self.config, self.model, self.total)
        self.evaluate = build_evaluator(self.model, self.config.training.eval_batch_size)
        self.measure_splitting = build_splitting_meter(self.model, self.config.training.batch_size)
        self.num_parameters = count_parameters(self.model)
        if resume:
            self._restore()
            self._describe()
            if self.step >= self.total and (self.directory.path / "summary.json").exists():
                self.reporter.say("The run is finished: nothing is left to do.")
                return self.directory.read_json("summary.json")
        else:
            self._describe()
            for note in notes:
                self.reporter.say(note)
            self._create()
        with watch_signals() as watch:
            self._train(watch)
        return self._finish()

    def _build_model(self) -> tuple[Classifier, list[str]]:
        if self.source is None:
            return build_model(self.config), []
        return transplant(self.source.config, self.source.model, self.config)

    def _create(self) -> None:
        if self.source is None:
            self.directory.create(self.config)
            self._open_store({**build_manifest(self.dataset), "certificate": self._certify()})
            return
        begin = {"run": self.source.path.name, "run_id": self.source.manifest["run_id"], "step": self.source.step}
        manifest = {**build_manifest(self.dataset), "init": begin}
        self.directory.create(self.config, manifest)
        self._open_store(manifest)
        self._save()  # A resume could not draw these weights from the seed.
        self.directory.write_json("manifest.json", {**manifest, "certificate": self._certify()})

    def _certify(self) -> dict[str, Any] | None:
        """Measure the order of the discretisation, or say why there is none."""
        if not self.config.training.certify:
            return None
        begin = time.monotonic()
        certificate = describe_certificate(self.config)
        self.reporter.say(f"{certificate['text']} ({time.monotonic() - begin:.0f} s; --training.no-certify skips it)")
        return certificate

    def _open_store(self, manifest: dict[str, Any]) -> None:
        """Write the manifest of a new run, and open its checkpoints."""
        if not (self.directory.path / "manifest.json").exists():
            self.directory.write_json("manifest.json", manifest)
        keep = self.config.training.keep_checkpoints
        self.store = CheckpointStore(self.directory.checkpoints, run_id=manifest["run_id"], keep=keep)

    def _restore(self) -> None:
        is_new = not (self.directory.path / "manifest.json").exists()  # Interrupted before its first line.
        certificate = {"certificate": self._certify()} if is_new else {}
        manifest = {**build_manifest(self.dataset), **certificate} if is_new else self.directory.read_manifest()
        self._open_store(manifest)
        if manifest["data_fingerprint"] is None:
            raise InputError(
                f"`{self.directory.path}` was imported and never trained, so there is nothing to resume. Begin with "
                f"its weights by `ctt train --init {shlex.quote(str(self.directory.path))}`."
            )
        if manifest["data_fingerprint"] != self.dataset.fingerprint:
            raise InputError(
                f"`{self.directory.path}` was trained on data with the fingerprint "
                f"{manifest['data_fingerprint'][:12]}, got {self.dataset.fingerprint[:12]}. "
                "Pass --data.dir of the same data."
            )
        changes = environment_changes(manifest)
        if changes:
            self.reporter.say(f"Not bit-equal to an undisturbed run, since this machine differs: {'; '.join(changes)}.")
        if self.store.latest_step() is not None:
            record, meta = self.store.restore(jax.eval_shape(lambda: state_record(self.state)))
            self.state = state_from_record(record, self.state)
            self.step, self.last_train, self.window = int(self.state.step), meta["last_train"], meta["window"]
            self.clock = Clock(**meta["clock"])
        elif "init" in manifest:
            raise InputError(
                f"`{self.directory.path}` was interrupted before its initial weights, another run's, were saved. "
                "Remove the folder and start again by ctt train --init."
            )
        self.directory.rewind_metrics(self.step)
        self.reporter.say(f"Resuming {self.directory.path} at step {self.step} of {self.total}.")

    def _describe(self) -> None:
        sizes = " / ".join(f"{len(self.dataset.split(name).labels):,}" for name in ("train", "val", "test"))
        config = self.config
        self.reporter.say(
            f"{config.name}: {config.model.name}, {self.num_parameters:,} parameters, "
            f"{config.splitting.scheme} + {config.splitting.substep_text}, {config.splitting.steps} steps "
            f"to t = {config.splitting.horizon:g}, {config.normalization.placement}-norm, "
            f"gradient {config.gradient.method}"
        )
        self.reporter.say(
            f"{config.data.name}: {sizes} images (train / val / test), {self.total} optimiser steps of "
            f"{config.training.batch_size}, run directory {self.directory.path}"
        )

    def _train(self, watch: SignalWatch) -> None:
        training, total = self.config.training, self.total
        eval_every = training.eval_every or max(total // 10, 1)
        checkpoint_every = training.checkpoint_every or eval_every
        if self.step >= total:
            return
        advance = self._compile()
        self.reporter.start("training", total, self.step)
        try:
            begin = time.monotonic()
            while self.step < total:
                advance()
                self.reporter.advance(self.step, "", is_milestone=False)
                is_log = self.step % training.log_every == 0 or self.step == total
                is_eval = self.step % eval_every == 0 or self.step == total
                is_save = self.step % checkpoint_every == 0 or self.step == total
                is_stop = watch.received is not None
                if is_log or is_eval or is_save or is_stop:
                    self._flush()
                    self.clock.training += time.monotonic() - begin
                    self._pause(is_log=is_log, is_eval=is_eval, is_save=is_save or is_stop)
                    begin = time.monotonic()
                if is_stop and watch.received is not None and self.step < total:
                    self._leave(watch.received)
        finally:
            self.reporter.stop()

    def _compile(self) -> Any:
        """Compile the update, the batch gathered on the device, and return a function that advances."""
        batch_size, num_train = self.config.training.batch_size, len(self.dataset.train.labels)
        images, labels = jax.device_put((self.dataset.train.images, self.dataset.train.labels))

        def step(state: TrainState, images: jax.Array, labels: jax.Array, indices: jax.Array) -> Any:
            return self.update(state, Batch(images[indices], labels[indices]))

        begin = time.monotonic()
        indices = jnp.zeros(batch_size, jnp.int32)
        self.state = jax.device_put(self.state)
        compiled = jax.jit(step, donate_argnums=0).lower(self.state, images, labels, indices).compile()
        self.clock.compiling += time.monotonic() - begin

        def advance() -> None:
            chosen = batch_indices(self.config.seed, self.step, num_examples=num_train, batch_size=batch_size)
            self.state, metrics = compiled(self.state, images, labels, jnp.asarray(chosen))
            self.pending.append(metrics)
            self.step += 1
            self.clock.images += batch_size

        return advance

    def _flush(self) -> None:
        """Read the measures of the steps since the last flush, and stop where one is not finite."""
        first = self.step - len(self.pending) + 1
        values = jax.device_get(self.pending)
        for offset, line in enumerate(values):
            if not (math.isfinite(line["loss"]) and math.isfinite(line["gradient_norm"])):
                raise NonFiniteError(
                    f"The loss or gradient is not finite at step {first + offset} (seen between steps {first} and "
                    f"{self.step}); {self._remedy()}"
                )
        self.window += [{key: float(value) for key, value in line.items()} for line in values]
        self.pending = []

    def _pause(self, *, is_log: bool, is_eval: bool, is_save: bool) -> None:
        text = ""
        if is_log and self.window:
            means = {key: float(np.mean([line[key] for line in self.window])) for key in self.window[0]}
            means["learning_rate"] = self.window[-1]["learning_rate"]
            self.last_train, self.window = means, []
            rate = self.clock.images / max(self.clock.training, 1e-9)
            self.directory.append_metrics({"step": self.step, "split": "train", **means, "images_per_second": rate})
            text = f"loss {means['loss']:.3f}  accuracy {means['accuracy']:.1%}  {rate:,.0f} images/s"
        if is_eval:
            self._evaluate_on("val")
        if is_save:
            self._save()
        self.reporter.advance(self.step, text, is_milestone=is_log)

    def _evaluate_on(self, split: str) -> None:
        result = self.evaluate(self.state.weights, self.dataset.split(split))
        self._require_finite(result.loss)
        self.measured_step = self.step
        line = {"step": self.step, "split": split, "loss": result.loss, "accuracy": result.accuracy}
        if self.config.training.log_splitting_error:
            line["splitting"] = self.measure_splitting(self.state.weights, self.dataset.split(split))
        self.directory.append_metrics(line)
        self.reporter.say(f"step {self.step}: {split} loss {result.loss:.3f}, {split} accuracy {result.accuracy:.2%}")

    def _save(self) -> None:
        """Save the state, after a look at whether training could go on from it."""
        if self.measured_step != self.step:
            num_some = min(len(self.dataset.val.labels), self.config.training.eval_batch_size)
            some = self.dataset.val.select(np.arange(num_some))
            self._require_finite(self.evaluate(self.state.weights, some).loss)
        record = {"last_train": self.last_train, "window": self.window, "clock": self.clock.record()}
        self.store.save(self.step, state_record(self.state), record)

    def _require_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise NonFiniteError(f"The loss on val is not finite after step {self.step}; {self._remedy()}")

    def _remedy(self) -> str:
        newest = self.store.latest_step()
        kept = f"the checkpoint of step {newest} is kept" if newest is not None else "no checkpoint was saved yet"
        return (
            f"{kept} in {self.directory.path}. Start a new run with a lower optimizer.learning_rate, or with "
            "optimizer.clip_norm."
        )

    def _leave(self, signum: int) -> None:
        self.reporter.stop()
        raise Interrupted(
            signum,
            f"Interrupted at step {self.step} of {self.total}; everything up to there is saved. "
            f"Go on with: ctt train --resume {shlex.quote(str(self.directory.path))}",
        )

    def _finish(self) -> dict[str, Any]:
        val, test = (self.evaluate(self.state.weights, self.dataset.split(name)) for name in ("val", "test"))
        per_epoch = steps_per_epoch(len(self.dataset.train.labels), self.config.training.batch_size)
        lines = self.directory.read_metrics()
        if not any(line["split"] == "test" and line["step"] == self.step for line in lines):
            self.directory.append_metrics(
                {"step": self.step, "split": "test", "loss": test.loss, "accuracy": test.accuracy}
            )
        summary = {
            "steps": self.step,
            "epochs": self.step / per_epoch,
            "num_parameters": self.num_parameters,
            "train_loss": self.last_train.get("loss"),
            "val_loss": val.loss,
            "val_accuracy": val.accuracy,
            "test_loss": test.loss,
            "test_accuracy": test.accuracy,
            "wall_seconds": round(self.clock.total(), 3),
            "compile_seconds": round(self.clock.compiling, 3),
            "images_per_second": round(self.clock.images / max(self.clock.training, 1e-9), 3),
            "params_sha256": tree_sha256(weights_record(self.state.params)),
            "data_fingerprint": self.dataset.fingerprint,
            "seed": self.config.seed,
        }
        self.directory.write_json("summary.json", summary)
        return summary


def load_with_progress(config: Config, reporter: Reporter) -> Dataset:
    """Load the data of a config, showing how far the decoding is.

    Args:
        config: a resolved config.
        reporter: where progress is shown.

    Raises:
        InputError: see `ctt.data.load_dataset`.
    """
    if config.data.name == "imported":
        raise InputError(
            "`data.name` must be a data set, got 'imported': the run has none yet. Pass --data.name cifar10, "
            "say, and --data.dir."
        )
    is_started = False

    def progress(done: int, total: int) -> None:
        nonlocal is_started
        if not is_started:
            reporter.start("reading images", total, 0)
            is_started = True
        reporter.advance(done, "", is_milestone=done == total)

    try:
        return load_dataset(config.data, progress)
    finally:
        reporter.stop()
