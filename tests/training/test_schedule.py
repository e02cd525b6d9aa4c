"""The learning rate at the ends of each stretch of a run: the first update, the end of the warm-up, the last update."""

import pytest

from ctt.config import OptimizerConfig
from ctt.config.name import SCHEDULES
from ctt.training.optimizer import SHAPES, build_schedule

TOTAL, WARMUP, DECAY, PEAK = 100, 10, 20, 0.1


def rates(total=TOTAL, **fields):
    given = {"learning_rate": PEAK, "warmup_fraction": 0.1, "decay_fraction": 0.2, "final_fraction": 0.0}
    schedule = build_schedule(OptimizerConfig(**(given | fields)), total)
    return [float(schedule(step)) / PEAK for step in range(total + 3)]


def test_the_shapes_are_those_that_the_command_line_offers():
    assert tuple(SHAPES) == SCHEDULES


@pytest.mark.parametrize("shape", SCHEDULES)
@pytest.mark.parametrize("initial", [0.0, 0.25, 1.0])
def test_the_first_update_of_a_warm_up_has_the_initial_fraction(shape, initial):
    assert rates(schedule=shape, initial_fraction=initial)[0] == pytest.approx(initial, abs=1e-7)


@pytest.mark.parametrize("shape", SCHEDULES)
def test_a_warm_up_of_w_updates_grows_by_a_wth_and_is_at_the_peak_at_update_w(shape):
    received = rates(schedule=shape)[: WARMUP + 1]
    assert received == pytest.approx([step / WARMUP for step in range(WARMUP + 1)], abs=1e-6)


@pytest.mark.parametrize("shape", SCHEDULES)
@pytest.mark.parametrize("total", [1, 2, 6])
def test_without_warm_up_the_first_update_is_at_the_peak_whatever_the_initial_fraction(shape, total):
    received = rates(total, schedule=shape, warmup_fraction=0.0, initial_fraction=0.5)
    assert received[0] == pytest.approx(1)


@pytest.mark.parametrize("shape", SCHEDULES)
def test_no_update_after_the_first_has_rate_zero(shape):
    assert min(rates(schedule=shape)[1:TOTAL]) > 0


@pytest.mark.parametrize("shape", ["cosine", "wsd"])
@pytest.mark.parametrize("final", [0.0, 0.3])
def test_the_final_fraction_is_reached_after_the_last_update_and_kept(shape, final):
    assert rates(schedule=shape, final_fraction=final)[TOTAL:] == pytest.approx([final] * 3, abs=1e-6)


@pytest.mark.parametrize("final", [0.0, 0.3])
def test_wsd_stays_at_the_peak_and_comes_down_on_a_line(final):
    received = rates(schedule="wsd", final_fraction=final)
    assert received[WARMUP : TOTAL - DECAY + 1] == pytest.approx([1.0] * (TOTAL - DECAY - WARMUP + 1))
    line = [1 - (1 - final) * step / DECAY for step in range(DECAY + 1)]
    assert received[TOTAL - DECAY : TOTAL + 1] == pytest.approx(line, abs=1e-6)


def test_the_last_update_of_wsd_is_one_step_of_the_line_above_the_end():
    assert rates(schedule="wsd")[TOTAL - 1] == pytest.approx(1 / DECAY, abs=1e-6)


def test_wsd_without_a_stable_part_is_a_triangle():
    received = rates(schedule="wsd", decay_fraction=0.9)
    assert received[WARMUP : TOTAL + 1] == pytest.approx([1 - n / 90 for n in range(91)], abs=1e-6)


def test_constant_is_at_the_peak_to_the_end():
    assert rates(schedule="constant")[WARMUP:] == pytest.approx([1.0] * (TOTAL + 3 - WARMUP))


def test_ten_epochs_of_three_hundred_from_one_rate_to_another_and_a_cosine_to_a_third():
    per_epoch, peak = 351, 5.5e-4
    config = OptimizerConfig(
        learning_rate=peak, warmup_fraction=10 / 300, initial_fraction=1e-5 / peak, final_fraction=1e-5 / peak
    )
    schedule = build_schedule(config, 300 * per_epoch)
    steps = [0, 10 * per_epoch, 155 * per_epoch, 300 * per_epoch]
    assert [float(schedule(step)) for step in steps] == pytest.approx([1e-5, peak, (peak + 1e-5) / 2, 1e-5], rel=1e-4)
