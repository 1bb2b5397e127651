"""Every backend against naive: values, weights and all gradients, at awkward shapes."""

import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

import dares
from dares.ops.depth_mix import BACKENDS, MixState
from tests.ops.passes import PRESETS, Pass, assert_all_close

FAST = [name for name in BACKENDS if name != "naive"]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 0.04, torch.float16: 5e-3}

pytestmark = pytest.mark.parametrize("backend", FAST)


def compare(each, backend, tolerance):
    fast, slow = each.scheme(backend), each.scheme("naive")
    (mine, state), (theirs, plain) = each.run(fast, record=True), each.run(slow, record=True)
    assert_all_close(mine, theirs, tolerance)
    for a, b in zip(fast.routing(state), slow.routing(plain), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_all_close([a], [b], tolerance)
    assert_all_close(each.gradients(fast), each.gradients(slow), tolerance)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_presets(name, dtype, backend):
    compare(Pass(PRESETS[name], dtype=dtype), backend, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["delta", "attnres_block"])
@pytest.mark.parametrize(
    ("shape", "sites"),
    [
        ((1, 1, 1), 2),  # the smallest: one token, width one
        ((3, 7, 33), 6),  # nothing a power of two
        ((5, 48), 4),  # no batch
        ((173, 20), 18),  # more tokens than width
        ((1, 2, 130), 30),
    ],
)
def test_shapes(name, shape, sites, dtype, backend):
    config = (
        PRESETS[name]
        if sites > 4
        else PRESETS[name].replace(**({"block": 1} if name == "attnres_block" else {}))
    )
    compare(Pass(config, shape=shape, sites=sites, dtype=dtype), backend, TOLERANCE[dtype])


def test_97_sources(backend):
    compare(Pass(PRESETS["delta"], shape=(3, 8), sites=96), backend, 1e-10)


def test_scores_of_any_size(backend):
    """Large scores must not overflow: each group and site has its own maximum."""
    each = Pass(PRESETS["null"], dtype=torch.float32)
    each.routers["query"] *= 200
    each.deltas = [(d.detach() * 100).requires_grad_() for d in each.deltas]
    compare(each, backend, 1e-4)


def test_zero_sources(backend):
    """A delta of zeros has no direction: its score is zero, not NaN."""
    each = Pass(PRESETS["delta"], dtype=torch.float32)
    each.deltas[3] = torch.zeros_like(each.deltas[3]).requires_grad_()
    compare(each, backend, 2e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_no_grad(name, backend):
    each = Pass(PRESETS[name])
    with torch.no_grad():
        mine, _ = each.run(each.scheme(backend))
        theirs, _ = each.run(each.scheme("naive"))
    assert_all_close(mine, theirs, 1e-10)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("trained", ["routers", "sources", "query", "last delta", "embeddings"])
def test_partial_gradients(name, trained, backend):
    each = Pass(PRESETS[name])
    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        groups = {
            "routers": list(scheme.parameters()),
            "sources": [each.embeddings, *each.deltas],
            "query": [scheme.query],
            "last delta": [each.deltas[-1]],
            "embeddings": [each.embeddings],
        }
        for leaf in each.leaves(scheme):
            leaf.requires_grad_(any(leaf is chosen for chosen in groups[trained]))
        outputs, _ = each.run(scheme)
        results.append(torch.autograd.grad(each.loss(outputs), groups[trained]))
    assert_all_close(*results, 1e-10)


@pytest.mark.parametrize("name", ["delta", "delta_block", "gate"])
def test_retain_graph(name, backend):
    each = Pass(PRESETS[name])
    scheme = each.scheme(backend)
    outputs, _ = each.run(scheme)
    loss, leaves = each.loss(outputs), each.leaves(scheme)
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    # a pass that goes only part of the way leaves nothing behind for the next one
    torch.autograd.grad(outputs[5].sum(), [scheme.query], retain_graph=True)
    second = torch.autograd.grad(loss, leaves, retain_graph=True)
    assert_all_close(first, second, 1e-12)
    loss.backward()
    assert_all_close([leaf.grad for leaf in leaves], first, 1e-12)


def test_gradient_of_one_site(backend):
    each = Pass(PRESETS["delta"])
    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        outputs, _ = each.run(scheme)
        leaves = [each.embeddings, *each.deltas[:5], scheme.query]
        results.append(torch.autograd.grad(outputs[7].square().sum(), leaves))
    assert_all_close(*results, 1e-10)


def test_a_source_used_twice(backend):
    each = Pass(PRESETS["delta"])
    each.deltas = [each.deltas[0]] * each.sites
    compare_leaves = [each.embeddings, each.deltas[0]]
    results = []
    for which in (backend, "naive"):
        outputs, _ = each.run(each.scheme(which))
        results.append(torch.autograd.grad(each.loss(outputs), compare_leaves))
    assert_all_close(*results, 1e-10)


def test_a_site_read_twice(backend):
    each = Pass(PRESETS["delta"])
    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        state = scheme.start(each.embeddings)
        total = 0
        for site, delta in enumerate(each.deltas):
            total = total + scheme.read(state, site).sum() + scheme.read(state, site).square().sum()
            scheme.write(state, site, delta)
        results.append(torch.autograd.grad(total, each.leaves(scheme)[:-3]))
    assert_all_close(*results, 1e-10)


@pytest.mark.parametrize("name", ["delta", "delta_block", "cumulative"])
def test_forks_do_not_disturb_each_other(name, backend):
    """Two continuations of one state, each with deltas of its own."""
    each = Pass(PRESETS[name])
    other = [torch.randn_like(d).requires_grad_() for d in each.deltas]

    def finish(scheme, state, deltas, first):
        outputs = []
        for site in range(first, each.sites):
            outputs.append(scheme.read(state, site))
            scheme.write(state, site, deltas[site])
        return [*outputs, scheme.finish(state)]

    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        state = scheme.start(each.embeddings)
        for site in range(5):
            scheme.read(state, site)
            scheme.write(state, site, each.deltas[site])
        branch = state.fork()
        outputs = finish(scheme, state, each.deltas, 5) + finish(scheme, branch, other, 5)
        leaves = [each.embeddings, *each.deltas, *other[5:]]
        loss = sum(o.square().sum() for o in outputs)
        results.append([*outputs, *torch.autograd.grad(loss, leaves)])
    assert_all_close(*results, 1e-10)


@pytest.mark.parametrize("name", PRESETS)
def test_activation_offload(name, backend):
    each = Pass(PRESETS[name])
    scheme = each.scheme(backend)
    expected = each.gradients(scheme)
    with torch.autograd.graph.save_on_cpu():
        outputs, _ = each.run(scheme)
    actual = torch.autograd.grad(each.loss(outputs), each.leaves(scheme))
    assert_all_close(actual, expected, 1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_gradient_checkpointing(name, backend):
    """Each pair of sites runs twice, from the state that it was given."""
    each = Pass(PRESETS[name])
    scheme = each.scheme(backend)
    expected = each.gradients(scheme)

    def pair(state, first):
        state = state.fork()
        reads = []
        for site in (first, first + 1):
            reads.append(scheme.read(state, site))
            scheme.write(state, site, each.deltas[site] * reads[-1].tanh())
        return reads, state

    def whole(run):
        state, outputs = scheme.start(each.embeddings), []
        for first in range(0, each.sites, 2):
            reads, state = run(pair, state, first)
            outputs += reads
        return torch.autograd.grad(each.loss([*outputs, scheme.finish(state)]), each.leaves(scheme))

    def checkpointed(function, *args):
        return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)

    plain = whole(lambda function, *args: function(*args))
    for _ in range(3):  # buffers are used again from the second time on
        assert_all_close(whole(checkpointed), plain, 1e-10)
    assert_all_close(each.gradients(scheme), expected, 1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_autocast(name, backend):
    """Half-precision deltas on a float32 stream, as autocast makes them."""
    each = Pass(PRESETS[name], dtype=torch.float32)
    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            state = scheme.start(each.embeddings)
            outputs = []
            for site, delta in enumerate(each.deltas):
                outputs.append(scheme.read(state, site))
                scheme.write(state, site, delta.bfloat16())
            outputs.append(scheme.finish(state))
        results.append(torch.autograd.grad(each.loss(outputs), each.leaves(scheme)))
    assert_all_close(*results, 0.02)


@pytest.mark.parametrize("name", PRESETS)
def test_compile(name, backend):
    each = Pass(PRESETS[name])
    scheme = each.scheme(backend)
    expected = each.gradients(scheme)

    def whole(embeddings, deltas):
        state = scheme.start(embeddings)
        outputs = []
        for site, delta in enumerate(deltas):
            outputs.append(scheme.read(state, site))
            scheme.write(state, site, delta)
        return [*outputs, scheme.finish(state)]

    torch._dynamo.reset()
    outputs = torch.compile(whole, fullgraph=True, backend="aot_eager")(
        each.embeddings, each.deltas
    )
    assert_all_close(outputs, each.run(scheme)[0], 1e-10)
    actual = torch.autograd.grad(each.loss(outputs), each.leaves(scheme))
    assert_all_close(actual, expected, 1e-10)


def test_a_pass_is_freed_without_the_collector(backend):
    """A reference cycle would keep every source in memory until Python's collector runs."""
    gc.collect()
    gc.disable()
    try:
        each = Pass(PRESETS["delta"])
        outputs, state = each.run(each.scheme(backend))
        tensors = [weakref.ref(o) for o in outputs[1:]]  # site 0 reads the embeddings
        del outputs, state
        assert all(t() is None for t in tensors)
        assert not any(isinstance(o, MixState) for o in gc.get_objects())
    finally:
        gc.enable()


def saved_bytes(run):
    """Bytes kept for the backward, each storage once."""
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        kept = run()
    del kept
    return sum(storages.values())


@pytest.mark.parametrize("name", ["delta", "attnres"])
def test_memory_grows_with_depth_not_its_square(name, backend):
    sizes = {}
    for sites in (16, 32, 64):
        each = Pass(PRESETS[name], shape=(64, 1024), sites=sites, dtype=torch.float32)
        scheme = each.scheme(backend)
        sizes[sites] = saved_bytes(lambda e=each, s=scheme: e.run(s))
    source = 64 * 1024 * 4
    # the bank, and a few numbers a token, which are small beside a source
    assert sizes[64] / (65 * source) < 1.25
    assert sizes[64] / sizes[32] < 2.15


def test_unknown_backend(backend):
    with pytest.raises(ValueError, match="unknown backend 'gruoped'; did you mean 'grouped'"):
        dares.build_scheme(dares.preset("delta"), width=8, sites=4, backend="gruoped")
    scheme = dares.build_scheme(dares.preset("delta"), width=8, sites=4)
    with pytest.raises(ValueError, match="unknown backend"):
        scheme.backend = "fast"
    assert scheme.backend == "auto"
