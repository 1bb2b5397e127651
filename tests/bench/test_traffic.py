"""The byte model against what the backends really touch, and against the README's tables."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from dares.bench.traffic.bank import SCHEMES
from dares.bench.traffic.moved import EXACT_BYTES, Pass
from dares.bench.traffic.table import bytes_table, traffic, vectors_table
from dares.bench.workloads import scheme_config
from dares.schemes import build_scheme
from tests.bench.touched import Touched

README = Path(__file__).parents[2] / "src" / "dares" / "ops" / "depth_mix" / "README.md"
# No other size is a multiple of either: what has both axes is a vector a token, and is counted
# exactly. Scores and keys are as large at this size, so they are compared at another.
TOKENS, WIDTH = 53, 128


def touched(scheme, backend, layers, *, dtype=torch.float32, tokens=TOKENS, width=WIDTH):
    """What goes in and out of every operation of a pass, forward and backward."""
    mixing = build_scheme(
        scheme_config(scheme, layers), width=width, sites=2 * layers, backend=backend
    )
    embeddings, *deltas = (
        torch.randn(tokens, width).to(dtype).requires_grad_() for _ in range(1 + 2 * layers)
    )
    pull = torch.randn(tokens, width).to(dtype)
    with Touched(tokens, width) as forward:
        state = mixing.start(embeddings)
        outputs = []
        for site, delta in enumerate(deltas):
            outputs.append(mixing.read(state, site))
            mixing.write(state, site, delta)
        outputs = [*outputs[1:], mixing.finish(state)]
    leaves = [embeddings, *deltas, *mixing.parameters()]
    with Touched(tokens, width) as backward:
        # not .backward(), which copies what it leaves in .grad
        torch.autograd.grad(outputs, leaves, [pull] * len(outputs))
    return forward, backward


def vectors(scheme, backend, layers, dtype):
    """Vectors read and written, by dtype, less what the standard residual touches."""
    counts = []
    standard = touched("standard", backend, layers, dtype=dtype)
    for routed, plain in zip(touched(scheme, backend, layers, dtype=dtype), standard, strict=True):
        own = Counter(routed.vectors)
        own.subtract(plain.vectors)
        counts.append(+own)
    return counts


def expected(found: Pass, dtype):
    """The model's count in the same form."""
    counts = []
    for moved in (found.forward, found.backward):
        own = Counter()
        own["read", dtype] += moved.read
        own["written", dtype] += moved.written
        own["read", torch.float32] += moved.exact_read
        own["written", torch.float32] += moved.exact_written
        counts.append(own)
    return counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layers", [6, 12, 24])  # the first has half a block at its end
@pytest.mark.parametrize("scheme", SCHEMES)
def test_grouped_touches_what_the_model_counts(scheme, layers, dtype):
    found = traffic("grouped", scheme, layers, half=dtype == torch.bfloat16)
    assert vectors(scheme, "grouped", layers, dtype) == expected(found, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_naive_touches_what_the_model_counts(scheme, dtype):
    found = traffic("naive", scheme, 6, half=dtype == torch.bfloat16)
    assert vectors(scheme, "naive", 6, dtype) == expected(found, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_triton_touches_what_the_model_counts(scheme, dtype, monkeypatch):
    """The operators are seen whole; that they run is tested elsewhere, and takes long here."""
    pytest.importorskip("triton")
    from dares.ops.depth_mix.triton.launch import Launch

    launched = []
    monkeypatch.setattr(Launch, "run", lambda self: launched.append(self.kernel.__name__))
    forward, backward = vectors(scheme, "triton", 12, dtype)
    # two kernels of one operator read the source
    backward["read", dtype] += launched.count("score_d_keys_kernel")
    found = traffic("triton", scheme, 12, half=dtype == torch.bfloat16)
    assert [forward, backward] == expected(found, dtype)


@pytest.mark.parametrize("layers", [12, 24])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_the_model_leaves_out_is_small(scheme, layers):
    """Scores, weights and keys: all bytes that are touched are little more than the vectors'."""
    shape = {"tokens": 128, "width": 1024}
    routed, standard = (
        sum(each.all_bytes for each in touched(name, "grouped", layers, **shape))
        for name in (scheme, "standard")
    )
    model = traffic("grouped", scheme, layers).both.bytes(shape["width"], EXACT_BYTES)
    assert model < (routed - standard) / shape["tokens"] < 1.1 * model


def test_one_read_a_site_by_hand():
    """Four sublayers: three sites read 2, 3 and 4 sources, which are four in all."""
    bound = traffic("one read a site", "delta", 2)
    assert bound.forward.vectors == (2 + 3 + 4) + 3 * 2  # sources; stream in, read out
    kernels = 2 * (2 + 3 + 4) + 3 * 2  # sources in, gradients out; read's gradient and mix in
    again = (2 + 3 + 4) - 4  # gradients that meet an earlier one
    joined = 4 * 3  # with the stream's
    assert bound.backward.vectors == kernels + again + joined
    apart = traffic("the same, autograd adds", "delta", 2)
    assert apart.forward == bound.forward
    assert apart.backward.vectors == kernels + 3 * again + joined


def test_every_design_grows_as_it_should():
    """Reading everything again grows with the square of the depth, groups with its power 3/2."""
    for design in ("naive", "one read a site"):
        assert 3.8 < _growth(design) < 4.1
    for design in ("grouped", "triton"):
        assert 2.2 < _growth(design) < 3.0


def _growth(design):
    """How many times as much at twice the depth."""
    once, twice = (traffic(design, "delta", layers).both.vectors for layers in (48, 96))
    return twice / once


def test_readme_has_these_tables():
    text = README.read_text()
    assert vectors_table() in text
    assert bytes_table() in text


def test_mistakes():
    with pytest.raises(ValueError, match="unknown design 'groupd'; did you mean 'grouped'"):
        traffic("groupd", "delta", 4)
    with pytest.raises(ValueError, match="unknown scheme 'standard'; .*choose from: delta, "):
        traffic("grouped", "standard", 4)
