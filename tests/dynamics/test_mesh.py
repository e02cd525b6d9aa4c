import numpy as np
import pytest

from ctt.config.error import InputError
from ctt.dynamics.mesh import Mesh

MAKERS = {
    "midpoint": lambda: Mesh.midpoint(5, -1.0, 2.0),
    "gauss_legendre": lambda: Mesh.gauss_legendre(5, -1.0, 2.0),
    "from_edges": lambda: Mesh.from_edges([-1.0, -0.5, 0.7, 1.0, 1.1, 2.0]),
}


@pytest.fixture(params=MAKERS)
def mesh(request):
    return MAKERS[request.param]()


def integrate(mesh, function):
    return float(np.sum(mesh.weights * function(mesh.nodes)))


def test_the_measure_is_the_length_of_the_interval(mesh):
    assert mesh.measure == pytest.approx(3.0, rel=1e-14)


def test_nodes_lie_inside_the_interval_in_increasing_order(mesh):
    assert mesh.nodes[0] > -1
    assert mesh.nodes[-1] < 2
    assert np.all(np.diff(mesh.nodes) > 0)


def test_a_linear_function_is_integrated_exactly(mesh):
    assert integrate(mesh, lambda x: 2 * x + 1) == pytest.approx(6.0, rel=1e-14)


def test_nodes_and_weights_are_float64(mesh):
    assert (mesh.nodes.dtype, mesh.weights.dtype) == (np.float64, np.float64)


def test_the_arrays_cannot_be_changed(mesh):
    with pytest.raises(ValueError, match="read-only"):
        mesh.nodes[0] = 0.0


def test_a_mesh_does_not_change_with_the_array_that_made_it():
    nodes = np.array([0.5])
    mesh = Mesh(nodes, np.array([1.0]))
    nodes[0] = 7.0
    assert mesh.nodes[0] == 0.5


def test_the_midpoint_rule_on_the_unit_interval():
    np.testing.assert_allclose(Mesh.midpoint(4).nodes, [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_allclose(Mesh.midpoint(4).weights, 0.25)


@pytest.mark.parametrize("degree", range(10))
def test_five_gauss_legendre_nodes_are_exact_to_degree_nine(degree):
    expected = (2.0 ** (degree + 1) - (-1.0) ** (degree + 1)) / (degree + 1)
    received = integrate(Mesh.gauss_legendre(5, -1.0, 2.0), lambda x: x**degree)
    assert received == pytest.approx(expected, rel=1e-13)


def test_the_midpoint_rule_is_second_order():
    errors = [abs(integrate(Mesh.midpoint(n), np.exp) - (np.e - 1)) for n in (40, 80)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.01)


def test_cells_have_their_midpoints_and_widths():
    mesh = Mesh.from_edges([0.0, 1.0, 4.0])
    np.testing.assert_array_equal(mesh.nodes, [0.5, 2.5])
    np.testing.assert_array_equal(mesh.weights, [1.0, 3.0])


def test_a_permuted_mesh_has_nodes_and_weights_in_the_new_order(mesh):
    order = [3, 0, 4, 1, 2]
    permuted = mesh.permute(order)
    np.testing.assert_array_equal(permuted.nodes, mesh.nodes[order])
    np.testing.assert_array_equal(permuted.weights, mesh.weights[order])


def test_meshes_with_the_same_numbers_are_equal_and_have_one_hash(mesh):
    copy = Mesh(mesh.nodes, mesh.weights)
    assert copy == mesh
    assert hash(copy) == hash(mesh)


def test_meshes_with_other_numbers_differ():
    assert Mesh.midpoint(4) != Mesh.gauss_legendre(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mesh([0.1, 0.2], [1.0]), "one weight a node, got 2 nodes and 1 weights"),
        (lambda: Mesh([0.1, 0.2], [1.0, 0.0]), "must be > 0"),
        (lambda: Mesh([0.1, 0.2], [1.0, -1.0]), "must be > 0"),
        (lambda: Mesh([0.1, np.nan], [1.0, 1.0]), "nodes of a mesh must be finite"),
        (lambda: Mesh([0.1, 0.2], [1.0, np.inf]), "weights of a mesh must be finite"),
        (lambda: Mesh([[0.1, 0.2]], [[1.0, 1.0]]), "one-dimensional"),
        (lambda: Mesh([], []), "at least one number"),
        (lambda: Mesh.midpoint(0), "`num_nodes` of a mesh must be >= 1, got 0"),
        (lambda: Mesh.midpoint(3, 1.0, 1.0), "start < end"),
        (lambda: Mesh.gauss_legendre(3, 0.0, np.inf), "must be finite"),
        (lambda: Mesh.from_edges([0.0]), "at least two increasing"),
        (lambda: Mesh.from_edges([0.0, 1.0, 1.0]), "at least two increasing"),
        (lambda: Mesh.midpoint(3).permute([0, 1]), "permutation of 0 to 2"),
        (lambda: Mesh.midpoint(3).permute([0, 1, 1]), "permutation of 0 to 2"),
    ],
)
def test_what_is_no_quadrature_rule_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
