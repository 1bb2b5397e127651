"""Buffers are used again, but never while anyone can still see them."""

import torch

from dares.ops import workspace

CPU = torch.device("cpu")
SIZE = 3_000_017  # no other test asks for this


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def test_a_buffer_is_used_again():
    one = workspace.empty((SIZE,), torch.float32, CPU)
    first = address(one)
    del one
    two = workspace.empty((SIZE,), torch.float32, CPU)
    assert address(two) == first


def test_a_view_keeps_it():
    one = workspace.empty((SIZE, 1), torch.float32, CPU)
    view = one[5:6]
    first = address(one)
    del one
    two = workspace.empty((SIZE, 1), torch.float32, CPU)
    assert address(two) != first
    view.fill_(7)
    two.zero_()
    assert view.item() == 7


def test_a_tensor_saved_for_the_backward_keeps_it():
    factor = workspace.empty((SIZE,), torch.float32, CPU).fill_(3.0)
    leaf = torch.ones(SIZE, requires_grad=True)
    product = (leaf * factor).sum()
    del factor
    workspace.empty((SIZE,), torch.float32, CPU).fill_(5.0)
    product.backward()
    assert (leaf.grad == 3).all()


def test_shapes_and_dtypes():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        tensor = workspace.empty((2, 3, 5), dtype, CPU)
        assert tensor.shape == (2, 3, 5)
        assert tensor.dtype == dtype
        assert tensor.data_ptr() % workspace.ALIGNMENT == 0
        tensor.fill_(2)
        assert (tensor == 2).all()
