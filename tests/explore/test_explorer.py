"""The page's numbers are the model's own, and a switch is the library's intervention."""

import pytest
import torch

from dares.explore.measures import MEASURES
from dares.routing import metrics
from dares.routing.interventions import intervening, remove_source
from dares.routing.passes import Rows
from dares.routing.samples import EVERY as SAMPLED
from dares.routing.samples import Samples, length, watching
from tests.explore.models import PLAIN, SCHEMES, TEXT, explorer, question
from tests.routing.models import EVERY

ROUTED = [name for name, config in EVERY.items() if config.scheme == "routed"]
UNROUTED = [name for name in SCHEMES if name not in ROUTED]


def ids_of(page, text=TEXT):
    return torch.tensor([page.subject.tokenizer(text)["input_ids"]])


@torch.no_grad()
def output_of(page, *changes, **options):
    """What the model gives for the text, under interventions if there are any."""
    model, ids = page.subject.model, ids_of(page)
    if not changes:
        return model(ids, use_cache=False, **options)
    with intervening(model, *changes):
        return model(ids, use_cache=False, **options)


def values(page, measure, **asked):
    answer = page.tokens(question(measure=measure, **asked))
    return [token["value"] for token in answer["tokens"]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_losses_are_the_models_own(scheme):
    page = explorer(scheme)
    ids = ids_of(page)
    logits = output_of(page).logits[0]
    own = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
    first, *rest = values(page, "loss")
    assert first is None
    assert rest == own.tolist()
    answer = page.tokens(question())
    assert answer["loss"] == pytest.approx(page.subject.model(ids, labels=ids).loss.item())
    assert answer["loss_before"] == answer["loss"]
    assert "".join(token["text"] for token in answer["tokens"]) == TEXT


@pytest.mark.parametrize("scheme", ROUTED)
def test_weights_are_the_models_own(scheme):
    page = explorer(scheme)
    routing = output_of(page, output_routing=True).routing
    own = {site: weights[0] for site, weights in enumerate(routing) if weights is not None}
    facts = page.describe()
    assert [site["index"] for site in facts["sites"]] == list(own)
    assert page.token(question(token=5))["weights"] == [each[5].tolist() for each in own.values()]
    for site in facts["sites"]:
        assert len(site["sources"]) == own[site["index"]].shape[-1]
        assert set(site["sources"]) <= set(facts["sources"])
    for measure, of in (
        ("largest", metrics.largest_weight),
        ("entropy", metrics.normalised_entropy),
        ("effective", metrics.effective_sources),
    ):
        expected = torch.stack([of(weights) for weights in own.values()]).mean(0)
        assert values(page, measure) == pytest.approx(expected.tolist())


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["delta_block", "attnres"])
def test_share_is_what_routing_changes(scheme):
    page = explorer(scheme)
    ids = ids_of(page)
    samples = Samples(page.scheme, Rows(ids, torch.ones_like(ids).bool()).mask)
    with watching(page.scheme, samples):
        page.subject.model(ids, use_cache=False)
    shares = [
        length(samples.reads[site.index] - samples.streams[site.index])
        / length(samples.reads[site.index])
        for site in page.sites
    ]
    expected = torch.stack(shares).mean(0).tolist()
    assert values(page, "share")[SAMPLED - 1 :: SAMPLED] == pytest.approx(expected, rel=1e-4)


def test_uncertainty_is_the_entropy_of_the_prediction():
    page = explorer()
    expected = torch.distributions.Categorical(logits=output_of(page).logits[0]).entropy()
    assert values(page, "uncertainty") == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_nothing_off_nothing_changes(scheme):
    page = explorer(scheme)
    answer = page.token(question(token=4))
    assert answer["divergence"] == 0
    assert all(each["before"] == each["after"] for each in answer["next"])
    if scheme in ROUTED:
        assert set(values(page, "change")) == {0}
    own = output_of(page).logits[0, 4].softmax(-1)
    likeliest = own.topk(8)
    shown = [each["before"] for each in answer["next"]]
    assert shown[:8] == likeliest.values.tolist()
    assert shown == sorted(shown, reverse=True)


@pytest.mark.parametrize("scheme", ROUTED)
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_switch_is_the_librarys_intervention(scheme, everywhere):
    page = explorer(scheme)
    site = page.sites[-1].index
    source = page.scheme.source_labels(site)[1]
    removed = remove_source(page.scheme, source, None if everywhere else [site])
    changed = output_of(page, removed, output_routing=True)
    before = output_of(page).logits[0]
    off = [(source, None if everywhere else site)]
    answer = page.token(question(token=6, off=off))
    assert answer["weights"][-1] == changed.routing[site][0, 6].tolist()
    assert answer["weights"][-1][1] == 0
    probabilities = changed.logits[0, 6].softmax(-1)
    assert {each["after"] for each in answer["next"]} <= set(probabilities.tolist())
    after = [each["after"] for each in answer["next"]]
    assert max(after) == probabilities.max()
    first, second = (
        torch.distributions.Categorical(logits=logits.double())
        for logits in (before, changed.logits[0])
    )
    divergences = torch.distributions.kl_divergence(first, second)
    assert answer["divergence"] == pytest.approx(divergences[6].item(), rel=1e-6)
    assert answer["divergence"] > 0
    assert values(page, "change", off=off) == pytest.approx(
        divergences.tolist(), rel=1e-6, abs=1e-12
    )
    assert page.tokens(question(off=off))["loss"] != page.tokens(question(off=off))["loss_before"]
    assert torch.equal(output_of(page).logits[0], before)  # and the model is as it was


def test_the_token_that_follows_in_the_text_is_shown():
    page = explorer()
    ids = ids_of(page)[0]
    own = output_of(page).logits[0].softmax(-1)
    for place in range(len(ids) - 1):
        (follows,) = (each for each in page.token(question(token=place))["next"] if each["follows"])
        assert follows["before"] == own[place, ids[place + 1]]
    last = page.token(question(token=len(ids) - 1))["next"]
    assert not any(each["follows"] for each in last)


def test_another_token_or_measure_costs_no_pass(monkeypatch):
    page, passes = explorer(), []
    forward = type(page.subject.model).forward
    monkeypatch.setattr(
        type(page.subject.model),
        "forward",
        lambda *args, **kwargs: passes.append(1) or forward(*args, **kwargs),
    )
    off = [("embedding", None)]
    page.tokens(question(off=off))
    assert len(passes) == 2
    page.token(question(token=3, off=off))
    page.tokens(question(measure="change", off=off))
    page.tokens(question(measure="largest"))
    assert len(passes) == 2
    page.tokens(question(off=[("running", None)]))
    assert len(passes) == 3
    page.tokens(question("another text"))
    assert len(passes) == 4


@pytest.mark.parametrize("scheme", UNROUTED)
def test_a_model_without_routing_shows_what_it_has(scheme):
    page = explorer(scheme)
    facts = page.describe()
    assert facts["sites"] == []
    assert facts["sources"] == []
    reason = "no residual scheme to look at" if scheme == PLAIN else "has no routing weights"
    assert reason in facts["note"]
    assert (facts["scheme"] is None) == (scheme == PLAIN)
    for name, measure in MEASURES.items():
        answer = page.tokens(question(measure=name))
        assert answer["measured"] == (not measure.routed)
        coloured = [token["value"] is not None for token in answer["tokens"]]
        assert any(coloured) != measure.routed
    answer = page.token(question())
    assert answer["weights"] == []
    assert len(answer["next"]) >= 8
    reason = "has no residual scheme" if scheme == PLAIN else "no routing weights"
    with pytest.raises(ValueError, match=reason):
        page.token(question(off=[("embedding", None)]))


def test_one_token_has_no_loss():
    answer = explorer().tokens(question("a"))
    assert [token["value"] for token in answer["tokens"]] == [None]
    assert answer["loss"] is None


def test_bad_questions():
    page = explorer()
    with pytest.raises(ValueError, match="unknown measure 'los'; did you mean 'loss'"):
        page.tokens(question(measure="los"))
    with pytest.raises(ValueError, match=r"token 99 is not in the text: it has 0 to \d+$"):
        page.token(question(token=99))
    with pytest.raises(ValueError, match="unknown source 'block 7'; did you mean 'block 0'"):
        page.token(question(off=[("block 7", None)]))
    with pytest.raises(ValueError, match="site 99 does not choose .* among 1, 2, 3, 4, 5"):
        page.token(question(off=[("embedding", 99)]))
    with pytest.raises(ValueError, match="site 1: unknown source 'block 0'"):
        page.token(question(off=[("block 0", 1)]))
    with pytest.raises(ValueError, match="site 1 has no source left to read"):
        page.token(question(off=[("embedding", 1), ("running", 1)]))
    assert page.token(question())["divergence"] == 0  # and goes on


def test_long_texts():
    page = explorer(most_tokens=8)
    message = "the text has .* tokens, and at most 8 are taken: shorten it, or start with --tokens"
    with pytest.raises(ValueError, match=message):
        page.tokens(question())
    page = explorer(most_tokens=1000)  # more than the model has positions
    with pytest.raises(ValueError, match="at most 64 are taken: shorten it$"):
        page.tokens(question(TEXT * 5))
    with pytest.raises(ValueError, match="--tokens must be at least 1, got 0"):
        explorer(most_tokens=0)


def test_a_diverged_model():
    page = explorer()
    with torch.no_grad():
        page.subject.model.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="the model predicts NaN for this text"):
        page.tokens(question())
