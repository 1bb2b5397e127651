"""What autograd, checkpointing, hooks, autocast and torch.compile do to every backend."""

import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

from dares.ops.depth_mix import MixState
from tests.ops.passes import FAST, PRESETS, SMALL, Pass, assert_all_close, cases

on_all_backends = pytest.mark.parametrize("backend", FAST)


@pytest.mark.parametrize(("backend", "name"), cases())
def test_no_grad(name, backend):
    each = Pass.on(backend, PRESETS[name])
    with torch.no_grad():
        mine, _ = each.run(each.scheme(backend))
        theirs, _ = each.run(each.scheme("naive"))
    assert_all_close(mine, theirs, each.tolerance)


@pytest.mark.parametrize(("backend", "name"), cases())
@pytest.mark.parametrize("trained", ["routers", "sources", "query", "last delta", "embeddings"])
def test_partial_gradients(name, trained, backend):
    each = Pass.on(backend, PRESETS[name])
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
    assert_all_close(*results, each.tolerance)


@pytest.mark.parametrize(("backend", "name"), cases(["delta", "delta_block", "gate"]))
def test_retain_graph(name, backend):
    each = Pass.on(backend, PRESETS[name])
    scheme = each.scheme(backend)
    outputs, _ = each.run(scheme)
    loss, leaves = each.loss(outputs), each.leaves(scheme)
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    # a pass that goes only part of the way leaves nothing behind for the next one
    torch.autograd.grad(outputs[each.sites // 2].sum(), [scheme.query], retain_graph=True)
    second = torch.autograd.grad(loss, leaves, retain_graph=True)
    assert_all_close(first, second, 1e-12)
    loss.backward()
    assert_all_close([leaf.grad for leaf in leaves], first, 1e-12)


@on_all_backends
def test_gradient_of_one_site(backend):
    each = Pass.on(backend, PRESETS["delta"])
    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        outputs, _ = each.run(scheme)
        leaves = [each.embeddings, *each.deltas[:4], scheme.query]
        results.append(torch.autograd.grad(outputs[5].square().sum(), leaves))
    assert_all_close(*results, each.tolerance)


@on_all_backends
def test_a_source_used_twice(backend):
    each = Pass.on(backend, PRESETS["delta"])
    each.deltas = [each.deltas[0]] * each.sites
    compare_leaves = [each.embeddings, each.deltas[0]]
    results = []
    for which in (backend, "naive"):
        outputs, _ = each.run(each.scheme(which))
        results.append(torch.autograd.grad(each.loss(outputs), compare_leaves))
    assert_all_close(*results, each.tolerance)


@on_all_backends
def test_a_site_read_twice(backend):
    each = Pass.on(backend, PRESETS["delta"])
    results = []
    for which in (backend, "naive"):
        scheme = each.scheme(which)
        state = scheme.start(each.embeddings)
        total = 0
        for site, delta in enumerate(each.deltas):
            total = total + scheme.read(state, site).sum() + scheme.read(state, site).square().sum()
            scheme.write(state, site, delta)
        results.append(torch.autograd.grad(total, each.leaves(scheme)[:-3]))
    assert_all_close(*results, each.tolerance)


@pytest.mark.parametrize(("backend", "name"), cases(["delta", "delta_block", "cumulative"]))
def test_forks_do_not_disturb_each_other(name, backend):
    """Two continuations of one state, each with deltas of its own."""
    each = Pass.on(backend, PRESETS[name])
    shared = each.sites // 2 - 1
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
        for site in range(shared):
            scheme.read(state, site)
            scheme.write(state, site, each.deltas[site])
        branch = state.fork()
        outputs = finish(scheme, state, each.deltas, shared) + finish(scheme, branch, other, shared)
        leaves = [each.embeddings, *each.deltas, *other[shared:]]
        loss = sum(o.square().sum() for o in outputs)
        results.append([*outputs, *torch.autograd.grad(loss, leaves)])
    assert_all_close(*results, each.tolerance)


@pytest.mark.parametrize(("backend", "name"), cases())
def test_activation_offload(name, backend):
    each = Pass.on(backend, PRESETS[name])
    scheme = each.scheme(backend)
    expected = each.gradients(scheme)
    with torch.autograd.graph.save_on_cpu():
        outputs, _ = each.run(scheme)
    actual = torch.autograd.grad(each.loss(outputs), each.leaves(scheme))
    assert_all_close(actual, expected, 1e-12)


@pytest.mark.parametrize(("backend", "name"), cases())
def test_gradient_checkpointing(name, backend):
    """Each pair of sites runs twice, from the state that it was given."""
    each = Pass.on(backend, PRESETS[name])
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
    for _ in range(1 if backend in SMALL else 3):  # the second time, buffers are used again
        assert_all_close(whole(checkpointed), plain, each.tolerance)
    assert_all_close(each.gradients(scheme), expected, 1e-12)


@pytest.mark.parametrize(("backend", "name"), cases())
def test_autocast(name, backend):
    """Half-precision deltas on a float32 stream, as autocast makes them."""
    each = Pass.on(backend, PRESETS[name], dtype=torch.float32)
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


@pytest.mark.parametrize(("backend", "name"), cases())
def test_compile(name, backend):
    each = Pass.on(backend, PRESETS[name])
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
    assert_all_close(outputs, each.run(scheme)[0], each.tolerance)
    actual = torch.autograd.grad(each.loss(outputs), each.leaves(scheme))
    assert_all_close(actual, expected, each.tolerance)


@on_all_backends
def test_a_pass_is_freed_without_the_collector(backend):
    """A reference cycle would keep every source in memory until Python's collector runs."""
    gc.collect()
    gc.disable()
    try:
        each = Pass.on(backend, PRESETS["delta"])
        outputs, state = each.run(each.scheme(backend))
        tensors = [weakref.ref(o) for o in outputs[1:]]  # site 0 reads the embeddings
        del outputs, state
        assert all(t() is None for t in tensors)
        assert not any(issubclass(type(o), MixState) for o in gc.get_objects())
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


@on_all_backends
@pytest.mark.parametrize("name", ["delta", "attnres"])
def test_memory_grows_with_depth_not_its_square(name, backend, monkeypatch):
    if backend == "triton":  # what is kept does not depend on values: the interpreter can rest
        from dares.ops.depth_mix.triton.launch import Launch

        monkeypatch.setattr(Launch, "run", lambda self: None)
    sizes = {}
    for sites in (16, 32, 64):
        each = Pass(PRESETS[name], shape=(64, 1024), sites=sites, dtype=torch.float32)
        scheme = each.scheme(backend)
        sizes[sites] = saved_bytes(lambda e=each, s=scheme: e.run(s))
    source = 64 * 1024 * 4
    # the bank, and a few numbers a token, which are small beside a source
    assert sizes[64] / (65 * source) < 1.25
    assert sizes[64] / sizes[32] < 2.15
