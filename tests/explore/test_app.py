"""The application over HTTP: answers, bounds, and who may ask."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.resources import files
from itertools import islice

import pytest
from starlette.testclient import TestClient

from dares.explore.app import HEADERS, build_app
from dares.explore.desk import QUEUE
from dares.explore.explorer import Explorer
from dares.explore.measures import MEASURES
from dares.explore.question import MOST_BYTES
from tests.explore.models import TEXT, explorer, question


@pytest.fixture(scope="module")
def pages():
    return [explorer(), explorer("ddl", label="other")]


@pytest.fixture
def client(pages):
    with TestClient(build_app(pages), base_url="http://127.0.0.1:8000") as client:
        yield client


def error(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    return response.json()["error"]


def test_models(client, pages):
    facts = client.get("/api/models").json()
    assert facts["models"] == [page.describe() for page in pages]
    assert [each["name"] for each in facts["measures"]] == list(MEASURES)
    assert facts["colours"][0] == "#440154"
    assert facts["colours"][-1] == "#fde725"


def test_answers_are_the_explorers(client, pages):
    for number, page in enumerate(pages):
        asked = {"model": number, "text": TEXT, "token": 3}
        assert client.post("/api/token", json=asked).json() == page.token(question(token=3))
        asked = {"model": number, "text": TEXT, "measure": "largest"}
        answer = client.post("/api/tokens", json=asked).json()
        assert answer == page.tokens(question(measure="largest"))
    off = [{"source": "embedding", "site": 3}]
    answer = client.post("/api/token", json={"text": TEXT, "off": off}).json()
    assert answer == pages[0].token(question(off=[("embedding", 3)]))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"text": ""}, "the text is empty: type or paste some"),
        ({"text": TEXT * 9}, "at most 48 are taken: shorten it"),
        ({"text": TEXT, "measure": "x"}, "unknown measure 'x'; choose from: loss,"),
        ({"text": TEXT, "model": 2}, "there is no model 2: 2 are loaded"),
        ({"text": TEXT, "model": -1}, "there is no model -1"),
        ({"text": TEXT, "off": [{"source": "delta 9"}]}, "unknown source 'delta 9'"),
        ({"text": TEXT, "off": [{"source": "running", "site": 77}]}, "site 77 does not choose"),
    ],
)
def test_bad_input_is_a_sentence(client, asked, message):
    assert message in error(client.post("/api/tokens", json=asked), 400)


def test_bounds(client):
    long = {"text": "a" * MOST_BYTES}
    assert "more than 65,536 bytes" in error(client.post("/api/tokens", json=long), 413)

    def in_parts():  # without a Content-Length
        yield from [b" " * 4096] * 20

    json_type = {"content-type": "application/json"}
    response = client.post("/api/tokens", content=in_parts(), headers=json_type)
    assert "more than 65,536 bytes" in error(response, 413)


def test_only_this_machines_page_may_ask(client):
    assert client.get("/api/models", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"host": "evil.example:8000"}).status_code == 400
    assert client.get("/", headers={"host": "localhost:8000"}).status_code == 200
    # what a form of another site can send without asking first
    response = client.post("/api/tokens", content='{"text": "a"}')
    assert "must be application/json, got ''" in error(response, 415)
    plain = {"content-type": "text/plain"}
    assert error(client.post("/api/tokens", content="{}", headers=plain), 415)
    asking = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    response = client.options("/api/tokens", headers=asking)
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/models", "/nothing"])
def test_every_answer_has_the_headers(client, path):
    response = client.get(path)
    assert {name: response.headers[name] for name in HEADERS} == HEADERS
    assert "default-src 'none'" in response.headers["content-security-policy"]


def test_wrong_addresses(client):
    assert client.get("/nothing").status_code == 404
    assert client.get("/../app.py").status_code == 404
    assert client.get("/api/tokens").status_code in (404, 405)


def test_what_goes_wrong_inside_is_a_sentence_too(pages, monkeypatch):
    def fail(self, asked):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(Explorer, "tokens", fail)
    app = build_app(pages)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        message = error(client.post("/api/tokens", json={"text": TEXT}), 500)
    assert message == "something went wrong here: the terminal that runs dares explore says what"


def test_one_at_a_time_and_a_short_queue(pages, monkeypatch):
    begun, go = threading.Semaphore(0), threading.Event()
    at_once = []

    def slow(self, asked):
        at_once.append(self)
        begun.release()
        assert go.wait(30)
        assert at_once.count(self) == 1
        at_once.remove(self)
        return {}

    monkeypatch.setattr(Explorer, "tokens", slow)
    with (
        TestClient(build_app(pages), base_url="http://127.0.0.1") as client,
        ThreadPoolExecutor(2 * QUEUE) as threads,
    ):

        def ask(model=0):
            return client.post("/api/tokens", json={"text": "a", "model": model})

        under_way = [threads.submit(ask)]
        assert begun.acquire(timeout=30)
        under_way += [threads.submit(ask) for _ in range(2 * QUEUE - 2)]
        # those beyond the queue are answered while it is full
        refused = list(islice(as_completed(under_way, timeout=30), QUEUE - 1))
        for response in (each.result() for each in refused):
            assert "4 requests wait for this model already" in error(response, 503)
        other = threads.submit(ask, 1)  # the other model is free
        assert begun.acquire(timeout=30)
        go.set()
        assert other.result().status_code == 200
        codes = sorted(each.result().status_code for each in under_way)
    assert codes == [200] * QUEUE + [503] * (QUEUE - 1)


def test_the_page_needs_nothing_from_elsewhere():
    for path in files("dares.explore").joinpath("static").iterdir():
        text = path.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name
        assert "innerHTML" not in text, path.name
        assert "outerHTML" not in text, path.name
        assert "insertAdjacentHTML" not in text, path.name
