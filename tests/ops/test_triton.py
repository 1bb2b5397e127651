"""The Triton kernels: against plain torch, at sizes that cut their tiles; what they refuse."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch

import dares
from dares.ops.depth_mix import MixPlan, build_mixers, choose_backend
from dares.ops.depth_mix import operators as plain
from dares.ops.depth_mix.triton import operators as kernels
from tests.ops.passes import PRESETS, TOLERANCE, Pass, assert_all_close

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _nothing_is_left_unwritten():
    """New memory is filled with NaN, so that what a kernel forgets is seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def compare(mine, theirs, inputs, tolerance):
    """Outputs and the gradients of all inputs, the same random numbers pulling at both."""
    results = []
    for function in (mine, theirs):
        leaves = [each.clone().requires_grad_() for each in inputs]
        outputs = [o for o in function(*leaves) if o is not None]
        generator = torch.Generator().manual_seed(5)
        pulls = [torch.randn(o.shape, generator=generator).to(o.dtype) for o in outputs]
        loss = sum((o * p).sum() for o, p in zip(outputs, pulls, strict=True))
        results.append([*outputs, *torch.autograd.grad(loss, leaves)])
    assert_all_close(*results, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("tokens", "width", "routers"), [(1, 1, 1), (70, 40, 5), (3, 70, 37), (2, 33, 200)]
)
def test_score(tokens, width, routers, dtype):
    source, keys = torch.randn(tokens, width).to(dtype), torch.randn(routers, width)
    compare(
        lambda u, k: kernels.score(u, k, 1e-6)[:1],
        lambda u, k: plain.score(u, k, 1e-6)[:1],
        [source, keys],
        TOLERANCE[dtype],
    )
    torch.testing.assert_close(kernels.score(source, keys, 1e-6), plain.score(source, keys, 1e-6))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "tokens", "width", "routers"),
    [
        (1, 1, 1, 1),
        (17, 2, 40, 3),
        (256, 1, 5, 2),
        (3, 2, 130, 16),
        (2, 1, 33, 37),
        (2, 1, 5, 70),
    ],
)
def test_weighted_sums(n, tokens, width, routers, dtype):
    softmax = torch.randn(n, tokens, routers).softmax(0)
    sources = [torch.randn(tokens, width).to(dtype) for _ in range(n)]
    compare(
        lambda p, *u: kernels.weighted_sums(p, list(u)),
        lambda p, *u: plain.weighted_sums(p, list(u)),
        [softmax, *sources],
        TOLERANCE[dtype],
    )


def test_a_sum_that_nobody_reads():
    softmax = torch.randn(2, 3, 4).softmax(0)
    sources = [torch.randn(3, 5) for _ in range(2)]
    compare(
        lambda p, *u: kernels.weighted_sums(p, list(u))[1:2],
        lambda p, *u: plain.weighted_sums(p, list(u))[1:2],
        [softmax, *sources],
        2e-5,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keep", [1.0, 0.0, 0.75])
@pytest.mark.parametrize(
    ("young", "tokens", "width"), [(0, 2, 9), (1, 1, 1), (5, 2, 600), (37, 1, 20)]
)
def test_read(young, tokens, width, keep, dtype):
    stream = torch.randn(tokens, width).to(dtype)
    coefficients = torch.randn(tokens, 2 + young)
    sums = [torch.randn(tokens, width) for _ in range(2)]
    terms = [torch.randn(tokens, width).to(dtype) for _ in range(young)]

    def read(operators, h, *others):
        return [operators.combine(h, keep, others[0], others[1:])]

    inputs = [coefficients, *sums, *terms]
    if keep:
        compare(
            lambda *t: read(kernels, *t),
            lambda *t: read(plain, *t),
            [stream, *inputs],
            TOLERANCE[dtype],
        )
    else:  # an infinite stream that is not kept does no harm
        stream = torch.full_like(stream, torch.inf)
        compare(
            lambda *t: read(kernels, stream, *t),
            lambda *t: read(plain, stream, *t),
            inputs,
            TOLERANCE[dtype],
        )


def test_tensors_that_are_not_contiguous_or_aligned():
    softmax = torch.randn(3, 4, 2).softmax(0).transpose(0, 1).contiguous().transpose(0, 1)
    whole = torch.randn(8, 3, 11)
    sources = [whole[1:5, 0], whole[2:6, 1], torch.randn(11, 4).T]
    sources.append(torch.randn(45)[1:].view(4, 11))  # contiguous, four bytes off
    softmax = torch.cat([softmax, softmax[:1]])
    compare(
        lambda p, *u: kernels.weighted_sums(p, list(u)),
        lambda p, *u: plain.weighted_sums(p, list(u)),
        [softmax, *sources],
        2e-5,
    )
    for mine, theirs in zip(
        kernels.weighted_sums(softmax, sources), plain.weighted_sums(softmax, sources), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
    for source in sources:
        keys = torch.randn(11, 3).T
        mine, theirs = kernels.score(source, keys, 1e-6), plain.score(source, keys, 1e-6)
        torch.testing.assert_close(mine, theirs)


def test_a_scheme_can_be_copied_and_pickled():
    each = Pass.on("triton", PRESETS["delta"])
    scheme = each.scheme("triton")
    for other in (copy.deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert other.backend == "triton"
        assert_all_close(each.run(other)[0], each.run(scheme)[0], 1e-12)


def test_no_tokens():
    source = torch.randn(0, 6, requires_grad=True)
    keys = torch.randn(3, 6, requires_grad=True)
    scores, _ = kernels.score(source, keys, 1e-6)
    gradients = torch.autograd.grad(scores.sum(), [source, keys])
    assert scores.shape == (0, 3)
    assert gradients[0].shape == (0, 6)
    assert (gradients[1] == 0).all()


def test_the_same_bits_every_time():
    each = Pass.on("triton", PRESETS["gate"])
    scheme = each.scheme("triton")
    for one, two in zip(each.gradients(scheme), each.gradients(scheme), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["delta", "attnres_block"])
def test_identity_at_the_start_to_the_last_bit(name, dtype):
    each = Pass.on("triton", PRESETS[name], dtype=dtype)
    each.routers = {
        key: torch.zeros_like(value) if key == "query" else value
        for key, value in each.routers.items()
    }
    with torch.no_grad():
        outputs, _ = each.run(each.scheme("triton"))
        stream = each.embeddings
        for output, delta in zip(outputs, [*each.deltas, None], strict=True):
            assert torch.equal(output, stream)
            stream = stream if delta is None else stream + delta


@pytest.mark.parametrize("operator", ["score", "sums", "read"])
def test_operators_are_registered_well(operator):
    """Schema, fake implementation, autograd and AOT, as torch checks them."""
    softmax = torch.randn(2, 3, 2).softmax(0).requires_grad_()
    many = [torch.randn(3, 4, requires_grad=True) for _ in range(5)]
    function, arguments = {
        "score": (kernels.score, (many[0], torch.randn(2, 4, requires_grad=True), 1e-6)),
        "sums": (kernels.weighted_sums, (softmax, many[:2])),
        "read": (
            kernels.read,
            (many[0], 0.5, torch.randn(3, 4, requires_grad=True), many[1], many[2], many[3:]),
        ),
    }[operator]
    torch.use_deterministic_algorithms(False)
    torch.library.opcheck(function, arguments)


# -- what it refuses -------------------------------------------------------------------------------


def build(sites, **settings):
    return dares.build_scheme(dares.preset("delta"), width=4, sites=sites, **settings)


def test_at_most_256_sources():
    build(254, backend="triton")
    with pytest.raises(
        ValueError, match='257 sources; the triton backend takes 256: use backend="g'
    ):
        build(256, backend="triton")
    blocks = dares.preset("delta_block", block=100)
    with pytest.raises(ValueError, match="299 routers; the triton backend takes 256"):
        dares.build_scheme(blocks, width=4, sites=300, backend="triton")


def test_no_float64():
    scheme = build(4, backend="triton")
    with pytest.raises(ValueError, match='got torch.float64: use backend="grouped"'):
        scheme.start(torch.randn(3, 4, dtype=torch.float64))


def run(code, **environment):
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **environment},
    )


def test_no_cpu_without_the_interpreter():
    result = run("""
        import sys
        import dares, torch
        assert "triton" not in sys.modules
        scheme = dares.build_scheme(dares.preset("delta"), width=4, sites=4, backend="triton")
        scheme.start(torch.randn(3, 4))
    """)
    assert (
        "ValueError: the triton backend runs on a GPU, and this tensor is on cpu" in result.stderr
    )
    assert "TRITON_INTERPRET=1" in result.stderr


def test_without_triton():
    result = run("""
        import sys
        sys.modules["triton"] = None
        import dares, torch
        scheme = dares.build_scheme(dares.preset("delta"), width=4, sites=4)
        scheme.read(scheme.start(torch.randn(3, 4)), 0)
        scheme.backend = "triton"
    """)
    last = result.stderr.strip().splitlines()[-1]
    assert last.endswith("which is not installed: pip install 'dares[triton]'")
    assert last.startswith("ValueError")


# -- "auto" ----------------------------------------------------------------------------------------


class OnGpu:
    """As much of a CUDA tensor as the choice looks at."""

    is_cuda, shape, device = True, (100, 8), "cuda:0"

    def __init__(self, dtype=torch.float32):
        self.dtype = dtype

    def numel(self):
        return 800


def test_auto_takes_triton_on_a_gpu(monkeypatch):
    plan = MixPlan(groups=(3,), sources=4, null=False, eps=1e-6)
    assert "triton" not in build_mixers("auto", plan)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    among = build_mixers("auto", plan)
    assert "triton" in among
    too_many = MixPlan(groups=(3,), sources=300, null=False, eps=1e-6)
    assert "triton" not in build_mixers("auto", too_many)

    class Card:
        major = 8

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    assert choose_backend("auto", OnGpu(), among) == "triton"
    assert choose_backend("auto", OnGpu(), ["naive", "grouped"]) == "grouped"
    assert choose_backend("auto", OnGpu(torch.float64), among) == "grouped"
    assert choose_backend("auto", torch.randn(100, 8), among) == "grouped"
    Card.major = 7
    assert choose_backend("auto", OnGpu(), among) == "grouped"
    assert choose_backend("triton", torch.randn(100, 8), among) == "triton"
