"""What is said of numbers made by hand."""

import pytest

from dares.routing.findings import RULES, findings, sharpness_word, use_word


def effect(kind, difference, spread=0.001, **rest):
    low, high = difference - spread, difference + spread
    return {"kind": kind, "difference": difference, "low": low, "high": high, **rest}


def entry(largest=0.8, dropped=0.1, fixed=0.05, effects=()):
    mean = {
        "largest": largest,
        "uniform": 0.2,
        "normalised_entropy": 0.5,
        "effective_sources": 1.5,
    }
    probes = {"effects": [effect("drop_all", dropped), effect("mean", fixed), *effects]}
    probes["effects"] += [] if effects else removed([0.1, 0.2], [0.01, 0.02])
    return {"sites": [{}], "sharpness": {"all": mean}, "probes": probes, "redundancy": []}


def removed(masses, differences):
    return [
        effect("remove_source", difference, mass=mass)
        for mass, difference in zip(masses, differences, strict=True)
    ]


@pytest.mark.parametrize(
    ("largest", "dropped", "title"),
    [
        (0.8, 0.1, "Sharp and used"),
        (0.8, 0.002, "Sharp but hardly used"),
        (0.8, -0.1, "Sharp and harmful on this text"),
        (0.8, 0.0105, "Sharp and its use is unclear"),
        (0.5, 0.1, "Soft but used"),
        (0.25, 0.0, "Nearly uniform and hardly used"),
    ],
)
def test_headline(largest, dropped, title):
    first = findings(entry(largest, dropped))[0]
    assert first.title == title
    assert first.numbers["difference"] == dropped
    assert f"{abs(dropped):.4f} nats" in first.text
    assert ("falls" in first.text) == (dropped < 0)


def test_every_word_has_its_rule():
    found = [sharpness_word({"largest": each, "uniform": 0.5}) for each in (0.52, 0.6, 0.8)]
    assert found == ["nearly uniform", "soft", "sharp"]  # half the weight is nothing among two
    assert set(found) <= set(RULES)
    for low, high in ((0.02, 0.03), (0, 0), (-0.1, -0.05), (0, 0.1), (-0.1, 0.1)):
        assert use_word({"low": low, "high": high}) in RULES


def test_without_probes_nothing_is_claimed():
    model = entry()
    model["probes"] = None
    (only,) = findings(model)
    assert only.title == "Sharp; whether it is used was not probed"


@pytest.mark.parametrize(
    ("fixed", "title"),
    [
        (0.1, "The choice follows the token"),
        (0.0, "The choice could as well be fixed"),
        (-0.1, "Fixed weights would do better"),
    ],
)
def test_input_dependence(fixed, title):
    effects = removed([0.1, 0.2], [0.1, 0.2])
    assert findings(entry(fixed=fixed, effects=effects))[1].title == title


@pytest.mark.parametrize(
    ("masses", "title"),
    [
        ([0.1, 0.2, 0.3], "Mass tells what matters"),
        ([0.3, 0.2, 0.1], "Mass does not tell what matters"),
        ([0.2, 0.2, 0.2], "Mass says nothing"),
    ],
)
def test_mass_and_effect(masses, title):
    effects = removed(masses, [0.01, 0.02, 0.03])
    assert findings(entry(effects=effects))[2].title == title


def test_redundancy_names_the_kinds():
    model = entry()
    model["redundancy"] = [
        {"kind": "cumulative state", "mean_cosine": 0.9, "effective_rank": 2.0, "sources": 13},
        {"kind": "sublayer delta", "mean_cosine": 0.1, "effective_rank": 11.0, "sources": 13},
    ]
    last = findings(model)[-1]
    assert last.title == "Redundant: cumulative state"
    assert "sublayer deltas 0.10 (11.0 directions of 13)" in last.text
