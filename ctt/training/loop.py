"""The training loop on the host: reads top to bottom, from data to summary."""

import math
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ctt.config.compatibility import check_trainable
from ctt.config.error import RunStoppedError
from ctt.config.resolve import resolve_config
from ctt.config.schema import Config
from ctt.data.dataset import Dataset
from ctt.data.sampler import steps_per_epoch
from ctt.interchange.transplant import transplant
from ctt.models.build import build_model, count_parameters
from ctt.models.classifier import Classifier
from ctt.training.certificate import describe_certificate
from ctt.training.devices import (
    agree,
    build_layout,
    is_leader,
    join_processes,
    part_in_time,
    require_same,
    wait_for_all,
)
from ctt.training.digest import tree_sha256
from ctt.training.directory import RunDirectory
from ctt.training.dispatch import Dispatcher, Landed
from ctt.training.examination import Examiner, find_score
from ctt.training.feed import Feed, build_feed
from ctt.training.interruption import Interrupted, SignalWatch, watch_signals
from ctt.training.loading import load_with_progress
from ctt.training.milestone import Milestones, count_steps
from ctt.training.opening import Resume, begin_run, restore_run, save
from ctt.training.progress import Reporter, SilentReporter, describe_measures
from ctt.training.resume import check_same_config
from ctt.training.run import Run, load_run
from ctt.training.state import weights_record
from ctt.training.step import build_update
from ctt.training.telemetry.memory import measure_memory
from ctt.training.telemetry.profiler import Profiler
from ctt.training.telemetry.sink import check_sinks, open_sinks
from ctt.training.telemetry.stopwatch import Stopwatch
from ctt.training.telemetry.view import RunFacts

_MUST_BE_FINITE = {
    "loss": "loss",
    "gradient_norm": "norm of the gradient",
    "update_norm": "norm of the update",
    "parameter_norm": "norm of the weights",
}
"""Measures of an update, in the order in which a divergence reaches them."""


class NonFiniteError(RunStoppedError):
    """The loss, the gradient or the state stopped being a number; the last good checkpoint is kept."""

    exit_status = 1


def train(
    config: Config,
    *,
    out: str | Path,
    resume: Resume = False,
    init: str | Path | None = None,
    reporter: Reporter | None = None,
    dataset: Dataset | None = None,
    profile: int | None = None,
) -> dict[str, Any]:
    """Train a model to the end of its run and measure it.

    Args:
        config: what to run.
        out: the run directory; new, or with `resume` that of the run to go on with.
        resume: whether to go on from the newest checkpoint, bit for bit on the same kind of machine; ``"auto"``: if
            there is a run, and from an older checkpoint where the newest is damaged.
        init: a run whose weights are the initial ones; None: they are drawn from the seed.
        reporter: where progress is shown; None: nowhere.
        dataset: the data, if loaded already.
        profile: number of steps that are traced, into the folder `profile` of the run; None: none.

    Returns:
        The summary, as written to `summary.json`.

    Raises:
        InputError: the config, the data or the folder cannot be used.
        Interrupted: Ctrl-C or SIGTERM came; a checkpoint of the last finished step was saved.
        NonFiniteError: a loss, gradient or state is not finite; the last good checkpoint is kept.
        SaveError: a checkpoint cannot be written; the older ones are kept.
    """
    config = resolve_config(config)
    joined = join_processes(config.devices)
    reporter = reporter if reporter is not None and is_leader() else SilentReporter()
    with part_in_time():
        if joined is not None:
            reporter.say(joined)
            require_same({"out": str(out), "resume": resume, "init": str(init), "profile": profile}, config)
        directory = RunDirectory(out)
        if resume == "auto" and not (directory.path / "config.json").exists():
            resume = False
        source = None if init is None or resume else load_run(init)
        return _Training(config, directory, reporter, source, profile or 0).run(dataset, resume=resume)


class _Training:
    """One session of one run: what the phases of `run` share."""

    def __init__(self, config: Config, directory: RunDirectory, reporter: Reporter, source: Run | None, profile: int):
        self.config, self.directory, self.reporter, self.source = config, directory, reporter, source
        self.profile = profile
        self.layout = build_layout(config.devices, config.training.batch_size)
        self.measured_step, self.score = -1, math.nan

    def run(self, dataset: Dataset | None, *, resume: Resume) -> dict[str, Any]:
        if resume:
            check_same_config(self.directory, self.config)
        else:
            self.directory.check_free()  # Before the data are read, which may take long.
        check_trainable(self.config)
        check_sinks(self.config)
        self.model, notes = self._build_model()  # Before the data too: what the model refuses is said at once.
        self.dataset = dataset or load_with_progress(self.config, self.reporter)
        require_same({"the data": self.dataset.fingerprint})
        self.total = count_steps(self.config.training, len(self.dataset.train.labels))
        self.milestones = Milestones.of(self.config.training, self.total)
        state, self.update = build_update(self.config, self.model, self.total)
        self.examiner = Examiner(self.config, self.model, self.dataset, self.layout)
        self.num_parameters = count_parameters(self.model)
        self._describe()
        given = (self.directory, self.config, self.dataset, self.layout, state)
        if resume:
            self.session = restore_run(*given, resume=resume, certify=self._certify, say=self.reporter.say)
            require_same({"the checkpoint": (self.session.manifest["run_id"], self.session.step)})
            self.reporter.say(f"Resuming {self.directory.path} at step {self.session.step} of {self.total}.")
            if self.session.step >= self.total and (self.directory.path / "summary.json").exists():
                self.reporter.say("The run is finished: nothing is left to do.")
                return self.directory.read_json("summary.json")
        else:
            for note in notes:
                self.reporter.say(note)
            self.session = begin_run(*given, source=self.source, certify=self._certify)
        session, self.sound_step = self.session, self.session.step
        self.sinks = open_sinks(self.config, self.directory, session.manifest, session.step, self.reporter.say)
        try:
            with watch_signals(self.reporter.note_stop) as watch:
                self._train(watch)
            session.store.wait()
            return self._finish()
        finally:
            try:
                session.store.close()
            finally:
                self.sinks.close()

    def _build_model(self) -> tuple[Classifier, list[str]]:
        if self.source is None:
            return build_model(self.config), []
        return transplant(self.source.config, self.source.model, self.config)

    def _certify(self) -> dict[str, Any] | None:
        """Measure the order of the discretisation, or say why there is none."""
        if not self.config.training.certify or not is_leader():
            return None
        begin = time.monotonic()
        certificate = describe_certificate(self.config)
        self.reporter.say(f"{certificate['text']} ({time.monotonic() - begin:.0f} s; --training.no-certify skips it)")
        return certificate

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
        session, milestones = self.session, self.milestones
        if session.step >= self.total:
            return
        self.stopwatch, place = Stopwatch(), self.directory.path / "profile"
        feed = build_feed(self.config, self.dataset.train, self.layout, milestones, first=session.step)
        try:
            dispatcher = self._compile(feed)
            self._introduce()
            warm = session.step + 2 * feed.rows  # Or sooner, where few steps are left.
            first = min(warm, max(session.step + 1, self.total - self.profile))
            with Profiler(place, first, self.profile, self.reporter.say) as profiler:
                begin = time.monotonic()
                while session.step < self.total:
                    count = dispatcher.choose(milestones.next_after(session.step) - session.step)
                    received, count = agree(watch.received or 0, -count)  # All processes make the same steps.
                    if received:
                        self._take(dispatcher.land())
                        self._leave(received)
                    dispatcher.dispatch(session.step, -count)
                    session.step, session.state = session.step - count, dispatcher.state
                    is_pause = milestones.is_any(session.step)
                    self._take(dispatcher.land(leave=0 if is_pause else 1))
                    profiler.advance(session.step, dispatcher.wait)
                    self.reporter.advance(session.step, "", is_milestone=False)
                    if is_pause:
                        session.clock.training += time.monotonic() - begin
                        self._pause()
                        begin = time.monotonic()
        finally:
            feed.close()
            self.stopwatch.close()
            self.reporter.stop()

    def _compile(self, feed: Feed) -> Dispatcher:
        """Put the state onto the devices, and compile the loop of updates."""
        training, session = self.config.training, self.session
        dispatcher = Dispatcher(
            self.update,
            session.state,
            feed,
            self.layout,
            self.stopwatch,
            rows=feed.rows,
            batch_size=training.batch_size,
        )
        session.state = dispatcher.state
        session.clock.compiling += self.stopwatch.compile_seconds
        return dispatcher

    def _introduce(self) -> None:
        """Begin the view of the run, with what earlier sessions measured."""
        config = self.config
        per_epoch = steps_per_epoch(len(self.dataset.train), config.training.batch_size)
        scheme = (
            f"{config.splitting.scheme} + {config.splitting.substep_text}, {config.splitting.steps} steps to "
            f"t = {config.splitting.horizon:g}"
        )
        place = str(self.directory.path)
        facts = RunFacts(name=str(config.name), scheme=scheme, place=place, steps_per_epoch=per_epoch)
        self.reporter.introduce(facts)
        for line in self.directory.read_metrics():
            self.reporter.show(line["step"], line["split"], line)
        self.reporter.start("training", self.total, self.session.step)

    def _take(self, landed: list[Landed]) -> None:
        """Take in the measures of finished updates, and stop where one is not finite."""
        for chunk in landed:
            for offset, line in enumerate(chunk.lines):
                broken = [text for name, text in _MUST_BE_FINITE.items() if not math.isfinite(line[name])]
                if broken:
                    last = chunk.first + len(chunk.lines) - 1
                    raise NonFiniteError(
                        f"The {broken[0]} is not finite at step {chunk.first + offset} (seen between steps "
                        f"{chunk.first} and {last}); {self._remedy()}"
                    )
            self.session.window += chunk.lines
            self.session.clock.images += len(chunk.lines) * self.config.training.batch_size

    def _pause(self) -> None:
        """Do what is due after a step."""
        session, milestones, text = self.session, self.milestones, ""
        is_log = milestones.is_log(session.step)
        if is_log and session.window:
            means = {key: float(np.mean([line[key] for line in session.window])) for key in session.window[0]}
            means["learning_rate"] = session.window[-1]["learning_rate"]
            session.last_train, session.window = means, []
            values = {**means, **self.stopwatch.measures(), **measure_memory()}
            self._log("train", values)
            text = describe_measures(values)
        with self.stopwatch.pause():
            if milestones.is_eval(session.step):
                self._examine("val")
            if milestones.is_save(session.step):
                self._save()
        self.reporter.advance(session.step, text, is_milestone=is_log)

    def _log(self, split: str, values: Mapping[str, Any]) -> None:
        self.sinks.write(self.session.step, split, values)
        self.reporter.show(self.session.step, split, values)

    def _examine(self, split: str) -> None:
        session = self.session
        values = self.examiner.measure(session.state, split)
        if not all(math.isfinite(value) for value in values.values()):
            self._refuse_state("loss on val")
        self.measured_step, self.score = session.step, find_score(values)
        self._log(split, {**values, **self.examiner.measure_splitting(session.state, split)})
        text = f"step {session.step}: {split} loss {values['loss']:.3f}, {split} accuracy {values['accuracy']:.2%}"
        average = f", of the average {values['ema_accuracy']:.2%}" if "ema_accuracy" in values else ""
        self.reporter.say(text + average)

    def _save(self) -> None:
        """Begin to save the state, after a look at whether training could go on from it."""
        is_measured = self.measured_step == self.session.step
        if not self.examiner.is_finite(self.session.state):
            self._refuse_state("state (weights, the optimiser's moments, averages)")
        if not is_measured and not self.examiner.has_finite_loss(self.session.state):
            self._refuse_state("loss on val")
        self.sound_step = self.session.step
        save(self.session, self.layout, score=self.score if is_measured else None)
        self.reporter.mark_saved(self.session.step)

    def _refuse_state(self, part: str) -> None:
        raise NonFiniteError(
            f"The {part} is not finite after step {self.session.step} (it broke between steps {self.sound_step + 1} "
            f"and {self.session.step}); {self._remedy()}"
        )

    def _remedy(self) -> str:
        self.session.store.wait()
        newest = self.session.store.latest_step()
        kept = f"the checkpoint of step {newest} is kept" if newest is not None else "no checkpoint was saved yet"
        return (
            f"{kept} in {self.directory.path}. Start a new run with a lower optimizer.learning_rate, or with "
            "optimizer.clip_norm."
        )

    def _leave(self, signum: int) -> None:
        """Save the state, and stop."""
        self._save()
        self.session.store.wait()
        self.reporter.stop()
        raise Interrupted(
            signum,
            f"Interrupted at step {self.session.step} of {self.total}; everything up to there is saved. "
            f"Go on with: ctt train --resume {shlex.quote(str(self.directory.path))}",
        )

    def _finish(self) -> dict[str, Any]:
        session, clock = self.session, self.session.clock
        val, test = (self.examiner.measure(session.state, split) for split in ("val", "test"))
        per_epoch = steps_per_epoch(len(self.dataset.train.labels), self.config.training.batch_size)
        lines = self.directory.read_metrics()
        if not any(line["split"] == "test" and line["step"] == session.step for line in lines):
            self._log("test", test)
        summary = {
            "steps": session.step,
            "epochs": session.step / per_epoch,
            "num_parameters": self.num_parameters,
            "train_loss": session.last_train.get("loss"),
            **{
                _name(split, key): value
                for split, part in (("val", val), ("test", test))
                for key, value in part.items()
            },
            "wall_seconds": round(clock.total(), 3),
            "compile_seconds": round(clock.compiling, 3),
            "images_per_second": round(clock.images / max(clock.training, 1e-9), 3),
            "params_sha256": tree_sha256(weights_record(self.layout.gather(session.state.params))),
            "data_fingerprint": self.dataset.fingerprint,
            "seed": self.config.seed,
        }
        if is_leader():
            self.directory.write_json("summary.json", summary)
        wait_for_all("writing the summary", timeout=self.config.devices.timeout)
        return summary


def _name(split: str, measure: str) -> str:
    """Return the name that a measure of a split has in the summary: ``test_loss``, ``ema_test_loss``."""
    plain = measure.removeprefix("ema_")
    return f"{'' if plain == measure else 'ema_'}{split}_{plain}"
