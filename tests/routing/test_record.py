"""Statistics of a text: against plain sums, in any batch, with padding, for every scheme."""

import dataclasses
import itertools
import time

import pytest
import torch

import dares
from dares.routing import metrics, record
from dares.routing.flow import gradient_norms
from dares.routing.samples import EVERY as SAMPLED
from dares.schemes import Watcher
from tests.models.families import tiny_model
from tests.routing.models import EVERY, padded, routed, rows

SCHEMES = ["delta", "delta_block", "attnres", "gate", "null"]


def flat(value):
    """Every number of a recording, with the path to it."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {f"{k}.{p}": v for k, each in value.items() for p, v in flat(each).items()}
    if isinstance(value, list | tuple):
        return {f"{k}.{p}": v for k, each in enumerate(value) for p, v in flat(each).items()}
    return {"": value}


def assert_same(one, other, tolerance):
    one, other = flat(one), flat(other)
    assert one.keys() == other.keys()
    for path, value in one.items():
        if isinstance(value, float):
            assert value == pytest.approx(other[path], rel=tolerance, abs=tolerance), path
        else:
            assert value == other[path], path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_are_those_of_the_weights(scheme):
    model, ids = routed(scheme), rows()
    found = record(model, [ids[:1], ids[1:]])
    with torch.no_grad():
        output = model(ids, output_routing=True, labels=ids)
    choosing = [site for site, weights in enumerate(output.routing) if weights is not None]
    assert [each.site.index for each in found.sites] == choosing
    for each in found.sites:
        weights = output.routing[each.site.index].double()
        assert each.sources == model.base_model.depth.source_labels(each.site.index)
        assert each.weights == pytest.approx(weights.mean((0, 1)).tolist(), abs=1e-6)
        assert sum(each.weights) == pytest.approx(1, abs=1e-6)
        assert each.largest == pytest.approx(weights.amax(-1).mean().item(), abs=1e-6)
        assert each.entropy == pytest.approx(metrics.entropy(weights).mean().item(), abs=1e-5)
        effective = metrics.effective_sources(weights).mean().item()
        assert each.effective_sources == pytest.approx(effective, abs=1e-5)
        assert each.variation > 1e-3  # these routers tell tokens apart
    assert found.tokens == ids.numel()
    assert found.loss == pytest.approx(output.loss.item(), abs=1e-5)


def test_zero_queries_are_uniform():
    found = record(routed("delta", std=0.0), [rows()])
    for each in found.sites:
        n = len(each.sources)
        assert each.weights == pytest.approx([1 / n] * n)
        assert each.normalised_entropy == pytest.approx(1)
        assert each.utilisation == pytest.approx(1)
        assert each.variation == pytest.approx(0, abs=1e-6)
    assert found.flow.routed == [0.0] * 7
    assert max(found.flow.turn) == 0


@pytest.mark.parametrize("scheme", ["delta_block", "hyper", "ddl"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_batch_and_padding_do_not_matter(family, scheme):
    model, ids = routed(scheme, family).double(), rows(8, 24)
    cut, right = padded(ids, [24, 17, 9, 20, 24, 8, 16, 11], width=29)
    _, left = padded(ids, [24, 17, 9, 20, 24, 8, 16, 11], left=True)
    alone = record(model, [part[None] for part in cut], token=30)
    assert alone.tokens == 129
    for batches in ([right], [left]):
        assert_same(alone, record(model, batches, token=30), 1e-7)
    split = [{key: value[part] for key, value in right.items()} for part in (slice(3), slice(3, 8))]
    assert_same(alone, record(model, split, token=30), 1e-7)


def test_twice_is_the_same_to_the_last_bit():
    model, ids = routed(), rows()
    assert record(model, [ids]) == record(model, [ids])


def test_the_chosen_token():
    model, ids = routed(), rows(3, 10)
    found = record(model, [ids[:2], ids[2:]], token=25)
    with torch.no_grad():
        routing = model(ids[2:], output_routing=True).routing
    assert (found.token.index, found.token.token_id) == (25, ids[2, 5])
    assert found.token.weights[3] == pytest.approx(routing[3][0, 5].tolist(), abs=1e-6)
    with pytest.raises(ValueError, match="token 30 is not in the text: it has tokens 0 to 29"):
        record(model, [ids], token=30)


class Keeper(Watcher):
    """Everything that passes, as it is."""

    def __init__(self):
        self.streams, self.deltas = [], []

    def on_read(self, state, site, read):
        self.streams.append(state.stream)

    def on_write(self, state, site, delta):
        self.deltas.append(delta)


@pytest.mark.parametrize("scheme", ["delta", "standard"])
def test_flow_and_redundancy_against_the_definitions(scheme):
    model, ids = routed(scheme).double(), rows()
    found = record(model, [ids])
    keeper = model.base_model.depth.watcher = Keeper()
    with torch.no_grad():
        model(ids)
    model.base_model.depth.watcher = None
    streams, deltas = ([t[:, SAMPLED - 1 :: SAMPLED].flatten(0, 1) for t in kept]
                       for kept in (keeper.streams, keeper.deltas))  # fmt: skip
    assert found.flow.tokens == 12
    assert found.flow.stream == pytest.approx([s.norm(dim=-1).mean().item() for s in streams])
    assert found.flow.delta == pytest.approx([d.norm(dim=-1).mean().item() for d in deltas])
    kinds = {each.kind: each for each in found.redundancy}
    cosine = torch.nn.functional.cosine_similarity
    states = [cosine(a, b, -1).mean().item() for a, b in itertools.pairwise(streams)]
    assert kinds["cumulative state"].neighbours == pytest.approx(states)
    every = [streams[0], *deltas]
    between = [cosine(a, b, -1).mean().item() for a, b in itertools.pairwise(every)]
    assert kinds["sublayer delta"].neighbours == pytest.approx(between)
    blocks = [streams[0], *(sum(deltas[i : i + 2]) for i in (0, 2, 4))]
    between = [cosine(a, b, -1).mean().item() for a, b in itertools.pairwise(blocks)]
    assert kinds["block delta"].neighbours == pytest.approx(between)
    for each in found.redundancy:
        assert 1 <= each.effective_rank <= each.sources


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("scheme", EVERY)
def test_every_scheme_can_be_recorded(scheme, family):
    model = routed(scheme, family)
    found = record(model, [rows(2, 16)])
    assert bool(found.sites) == any(model.base_model.depth.source_labels(site) for site in range(7))
    assert len(found.flow.delta) == 6
    numbers = [v for v in flat(found).values() if isinstance(v, float)]
    assert all(v == v and abs(v) < float("inf") for v in numbers)


def test_what_other_schemes_decide():
    gates = record(routed("ddl"), [rows()]).decisions["gate beta"]
    assert len(gates) == 6
    assert all(0 < each.mean[0] < 2 and each.spread[0] > 0 for each in gates)
    for scheme in ("hyper", "mhc"):
        decided = record(routed(scheme), [rows()]).decisions
        assert set(decided) == {"read weights", "stream mixing", "write weights"}
        assert torch.tensor(decided["stream mixing"][2].mean).shape == (4, 4)
    mixing = torch.tensor(record(routed("mhc"), [rows()]).decisions["stream mixing"][2].mean)
    for axis in (0, 1):  # doubly stochastic, as far as Sinkhorn's steps get
        torch.testing.assert_close(mixing.sum(axis), torch.ones(4), rtol=0, atol=0.05)
    dense = routed("dense")
    weights = record(dense, [rows()]).decisions["layer weights"]
    assert [each.labels for each in weights][-1] == ["embedding", "layer 0", "layer 1", "layer 2"]
    assert weights[-1].mean == pytest.approx(dense.base_model.depth.alpha[-4:].tolist()[::-1])
    assert weights[-1].spread == pytest.approx([0] * 4, abs=1e-7)


def test_gradient_norms_by_depth():
    model, ids = routed().double(), rows(2, 12)
    found = gradient_norms(model, [ids[:1], ids[1:]])
    model.base_model.depth.backend = "naive"  # plain autograd throughout
    assert found == pytest.approx(gradient_norms(model, [ids]), rel=1e-8)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_of_the_model_changes():
    model = routed().train()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    record(model, [rows()])
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.base_model.depth.watcher is None


def test_nan_weights_are_one_sentence():
    model = routed()
    with torch.no_grad():
        model.base_model.depth.query[1] = float("nan")
    with pytest.raises(ValueError, match=r"weights of site 2 \(layer 1 attention\) hold NaN"):
        record(model, [rows()])
    assert model.base_model.depth.watcher is None


@pytest.mark.parametrize(
    ("model", "batches", "message"),
    [
        (tiny_model("llama"), [rows()], "LlamaForCausalLM has no residual scheme to look at"),
        (routed(), [], "no tokens to look at"),
        (routed(), [rows()[0]], r"token ids \[rows, tokens\], got torch.int64 \(24,\)"),
        (routed(), [rows().float()], "got torch.float32"),
        (
            routed(),
            [{"input_ids": rows(), "attention_mask": torch.ones(4, 3)}],
            "attention_mask must have the shape of input_ids",
        ),
    ],
)
def test_bad_input(model, batches, message):
    with pytest.raises(ValueError, match=message):
        record(model, batches)


def test_memory_does_not_grow_with_the_text():
    model = routed()
    sizes = []
    for count in (1, 20):
        found = record(model, (rows(2, 16, seed=s) for s in range(count)))
        sizes.append(len(flat(found)))
    assert sizes[0] == sizes[1]


def test_looking_costs_less_than_twice_a_plain_pass():
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=4,
    )
    model = dares.from_config(config, dares.preset("delta")).eval()
    ids = torch.randint(512, (2, 256))

    @torch.no_grad()
    def plain():
        model(ids, use_cache=False)

    ratios = []
    plain(), record(model, [ids])
    for _ in range(5):
        start = time.process_time()  # of this process: others may use the machine
        plain()
        middle = time.process_time()
        record(model, [ids])
        ratios.append((time.process_time() - middle) / (middle - start))
    assert min(ratios) < 2
