import pytest

from ctt.config import InputError, TrainingConfig
from ctt.training.milestone import Milestones, count_steps


@pytest.mark.parametrize("total", [1, 7, 60])
@pytest.mark.parametrize("periods", [(1, 1, 1), (5, 7, 3), (100, 100, 100)])
def test_chunks_that_end_at_the_next_milestone_miss_none(total, periods):
    log_every, eval_every, save_every = periods
    milestones = Milestones(total, log_every, eval_every, save_every)
    step, stops = 0, []
    while step < total:
        step = milestones.next_after(step)
        stops.append(step)
    assert max(later - sooner for sooner, later in zip([0, *stops], stops, strict=False)) == milestones.longest
    assert stops == [step for step in range(1, total + 1) if milestones.is_any(step)]
    assert milestones.is_log(total)
    assert milestones.is_eval(total)
    assert milestones.is_save(total)


def test_evaluations_and_saves_derive_from_the_length_of_the_run():
    assert Milestones.of(TrainingConfig(log_every=3), 100) == Milestones(100, 3, 10, 10)
    assert Milestones.of(TrainingConfig(eval_every=4), 100).save_every == 4
    assert Milestones.of(TrainingConfig(eval_every=4, checkpoint_every=9), 100).save_every == 9
    assert Milestones.of(TrainingConfig(), 3).eval_every == 1


def test_epochs_are_counted_in_full_batches():
    assert count_steps(TrainingConfig(epochs=2, batch_size=10), 25) == 4
    assert count_steps(TrainingConfig(epochs=2, steps=7, batch_size=10), 25) == 7
    with pytest.raises(InputError, match=r"training\.epochs"):
        count_steps(TrainingConfig(epochs=0.01, batch_size=10), 25)
