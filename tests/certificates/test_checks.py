"""Recoveries, projections and meshes hold, and would not if what they check were wrong."""

import numpy as np
import pytest
from jax import numpy as jnp

from ctt.certificates import check_meshes, check_projections, check_recoveries
from ctt.certificates import constraint as constraint_module
from ctt.dynamics.literal import LiteralLayer


@pytest.fixture(scope="module")
def recoveries():
    return list(check_recoveries())


def test_every_recovery_holds(recoveries):
    assert {check.name: check.outcome for check in recoveries if check.outcome != "holds"} == {}


def test_the_literal_layer_is_recovered_to_round_off_with_and_without_eps(recoveries):
    assert [check.values["bound"] for check in recoveries if check.name.startswith("literal")] == [1e-13, 1e-13]


@pytest.mark.parametrize(
    "part", ["literal, eps 0", "literal, eps 1e-5", "post, ReLU", "pre, GELU", "summed", "Macaron"]
)
def test_the_architectures_of_the_literature_are_among_them(recoveries, part):
    assert any(part in check.name for check in recoveries)


def test_a_literal_layer_with_the_whole_eps_at_its_end_does_not_hold(monkeypatch):
    original = LiteralLayer.step

    def step(self, u, dt):
        self.closing.eps = self.opening.eps
        return original(self, u, dt)

    monkeypatch.setattr(LiteralLayer, "step", step)
    checks = check_recoveries()
    assert [next(checks).outcome, next(checks).outcome] == ["holds", "does not hold"]


def test_every_projection_property_holds():
    assert {check.name: check.outcome for check in check_projections() if check.outcome != "holds"} == {}


def test_the_farthest_point_is_not_taken_for_the_nearest(monkeypatch):
    original = constraint_module.project_to_s1
    monkeypatch.setattr(constraint_module, "project_to_s1", lambda u, eps: -original(u, eps))
    assert next(check_projections()).outcome == "does not hold"


def test_a_normalisation_that_is_off_its_set_is_not_idempotent(monkeypatch):
    original = constraint_module.project_to_s1
    monkeypatch.setattr(constraint_module, "project_to_s1", lambda u, eps: original(u, 1e-3))
    failed = [check.name for check in check_projections() if check.outcome != "holds"]
    assert "layer normalisation twice is once" in failed


def test_attention_converges_on_meshes():
    checks = list(check_meshes())
    assert [check.outcome for check in checks] == ["holds"] * 3
    assert abs(checks[0].values["slopes"][-1] - 2) <= 0.1


def test_a_score_scale_that_does_not_know_the_mesh_does_not_converge(monkeypatch):
    from ctt.dynamics import kernel

    original = kernel.attend

    def attend(query, key, value, *, scale, **options):
        return original(query, key, value, scale=query.shape[-1] ** -0.5, **options)

    monkeypatch.setattr(kernel, "attend", attend)
    assert next(check_meshes()).outcome == "does not hold"


def test_a_check_is_json():
    check = next(check_projections())
    record = check.record()
    assert record["name"] == check.name
    assert not any(isinstance(value, np.ndarray | jnp.ndarray) for value in record["values"].values())
