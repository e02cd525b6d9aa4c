import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctt.splitting import rollout, trajectory

pytestmark = pytest.mark.usefixtures("float64")

SLICES = 4


def step(u, theta, n):
    """Depends on state, control and step number, and does not commute with itself."""
    return {
        "x": jnp.tanh(u["x"] @ theta["matrix"]) + 0.1 * jnp.sin(n + 1.0),
        "y": u["y"] * jnp.cos(theta["scalar"]) + jnp.sum(u["x"]),
    }


def running_cost(n, u, u_next, theta):
    return {"kinetic": jnp.sum((u_next["x"] - u["x"]) ** 2) * (n + 1), "energy": jnp.sum(theta["matrix"] ** 2)}


@pytest.fixture
def controls():
    generator = np.random.default_rng(0)
    return {
        "matrix": jnp.asarray(generator.standard_normal((SLICES, 3, 3))),
        "scalar": jnp.asarray(generator.standard_normal(SLICES)),
    }


@pytest.fixture
def u0():
    return {"x": jnp.array([0.3, -1.0, 0.5]), "y": jnp.array(2.0)}


def loop(controls, u0, steps_per_slice):
    """The same as a Python loop: all states, and the sum of the costs."""
    states, total = [u0], None
    for n in range(SLICES * steps_per_slice):
        theta = jax.tree.map(lambda x, k=n // steps_per_slice: x[k], controls)
        states.append(step(states[-1], theta, n))
        cost = running_cost(n, states[-2], states[-1], theta)
        total = cost if total is None else jax.tree.map(jnp.add, total, cost)
    return states, total


@pytest.mark.parametrize("steps_per_slice", [1, 2, 3])
def test_the_final_state_equals_that_of_a_python_loop(controls, u0, steps_per_slice, relative_difference, tolerances):
    received, _ = rollout(step, controls, u0, steps_per_slice=steps_per_slice)
    assert relative_difference(received, loop(controls, u0, steps_per_slice)[0][-1]) < tolerances["float64"]


@pytest.mark.parametrize("steps_per_slice", [1, 3])
def test_running_costs_are_summed_over_all_steps(controls, u0, steps_per_slice, relative_difference, tolerances):
    _, costs = rollout(step, controls, u0, running_cost, steps_per_slice=steps_per_slice)
    assert relative_difference(costs, loop(controls, u0, steps_per_slice)[1]) < tolerances["float64"]


def test_a_running_cost_does_not_change_the_state(controls, u0, relative_difference, tolerances):
    with_cost, _ = rollout(step, controls, u0, running_cost)
    assert relative_difference(with_cost, rollout(step, controls, u0)[0]) < tolerances["float64"]


def test_without_a_running_cost_there_are_no_costs(controls, u0):
    assert rollout(step, controls, u0)[1] is None


def test_a_running_cost_may_be_a_python_number(controls, u0):
    assert float(rollout(step, controls, u0, lambda n, u, v, theta: 0.5)[1]) == 0.5 * SLICES


def test_a_step_sees_its_number_as_an_array_with_a_running_cost_too(controls, u0):
    def use_number(u, theta, n):
        return jax.tree.map(lambda x: x + n.astype(x.dtype), u)

    _, costs = rollout(use_number, controls, u0, lambda n, u, v, theta: v["y"] - u["y"])
    assert float(costs) == sum(range(SLICES))


@pytest.mark.parametrize("steps_per_slice", [1, 3])
def test_a_trajectory_holds_the_states_of_a_python_loop(controls, u0, steps_per_slice, relative_difference, tolerances):
    received = trajectory(step, controls, u0, steps_per_slice=steps_per_slice)
    states = loop(controls, u0, steps_per_slice)[0]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    assert relative_difference(received, expected) < tolerances["float64"]


def test_a_trajectory_begins_with_the_initial_state(controls, u0, relative_difference):
    first = jax.tree.map(lambda x: x[0], trajectory(step, controls, u0))
    assert relative_difference(first, u0) == 0


@pytest.mark.parametrize("steps_per_slice", [1, 2])
def test_a_trajectory_ends_with_the_final_state_of_the_rollout(
    controls, u0, steps_per_slice, relative_difference, tolerances
):
    last = jax.tree.map(lambda x: x[-1], trajectory(step, controls, u0, steps_per_slice=steps_per_slice))
    final, _ = rollout(step, controls, u0, steps_per_slice=steps_per_slice)
    assert relative_difference(last, final) < tolerances["float64"]
