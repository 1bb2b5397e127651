"""The page in a real Chromium: seen, clicked, typed at, in both widths."""

import re

import pytest

from tests.explore.browser import Page, chromium, obstacle, serving
from tests.explore.models import TEXT, explorer, question

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))
ATTACK = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def pages():
    room = {"most_tokens": 128, "positions": 128}  # for the text that the page begins with
    return [explorer(**room), explorer("ddl", label="other", **room)]


@pytest.fixture(scope="module")
def address(pages):
    with serving(pages) as address:
        yield address


@pytest.fixture
def page(driver, address):
    page = Page(driver, address)
    page.type(TEXT)
    page.wait(lambda: text_of_tokens(page) == TEXT)
    page.settle()
    return page


def text_of_tokens(page, model=0):
    shown = page.one(".tokens", model).get_property("textContent")
    return shown.replace("␣", " ")  # how a space alone is shown


def colours(page):
    return [each.value_of_css_property("background-color") for each in page.all(".tokens span")]


def choose(page, element, value):
    page.driver.find_element("css selector", f"#{element} option[value={value}]").click()
    page.settle()


def test_tokens_and_their_colours(page, pages):
    assert text_of_tokens(page) == TEXT
    loss = pages[0].tokens(question())["loss"]
    assert f"mean loss {loss:.3f} nats" in page.one(".facts").text
    by_loss = colours(page)
    assert len(set(by_loss)) > 3
    choose(page, "measure", "largest")
    page.wait(lambda: colours(page) != by_loss)
    assert "largest weight" in page.driver.find_element("id", "scale").text
    assert "no routing weights to colour tokens by" in page.one(".facts", 1).text
    assert page.problems() == []


def test_a_token_is_chosen_in_both_models(page, pages):
    page.all(".model:first-child [role=option]")[3].click()
    page.settle()
    expected = pages[0].token(question(token=3))
    weights = [weight for row in expected["weights"] for weight in row]
    shown = [cell.text for cell in page.all("table td:not(.none)")]
    assert sorted(shown) == sorted(f"{weight:.2f}" for weight in weights)
    assert [th.text for th in page.all("thead th")] == ["site", *pages[0].describe()["sources"]]
    chosen = page.all(".model [aria-selected=true][role=option]")
    assert len(chosen) == 2
    assert chosen[0].get_property("textContent") == chosen[1].get_property("textContent")
    assert len(page.one(".next", 1).find_elements("css selector", "ol li")) >= 8
    assert "has no routing weights" in page.one(".note", 1).text
    assert not page.one(".weights", 1).is_displayed()


def test_by_keyboard_alone(page, pages):
    page.driver.find_element("id", "text").send_keys(Keys.TAB)
    assert page.focused.get_attribute("id") == "measure"
    page.press(Keys.TAB)
    assert page.focused.get_attribute("role") == "option"
    page.press(Keys.HOME)
    page.press(Keys.ARROW_RIGHT)
    second = pages[0].token(question(token=1))["text"].strip()
    page.wait(lambda: f"“{second}”" in page.one(".next h3").get_property("textContent"))
    assert page.focused.get_attribute("aria-label").startswith(f"“{second}”, surprise:")
    assert page.focused.value_of_css_property("outline-style") == "solid"
    page.press(Keys.TAB)
    assert page.focused.get_attribute("role") == "gridcell"
    before = page.focused.get_attribute("aria-label")
    page.press(Keys.ARROW_UP)
    after = page.focused.get_attribute("aria-label")
    assert before != after
    assert " with weight " in after
    assert page.one(".cell").text.lower() == f"{after}.".lower()
    page.press(Keys.ENTER)
    page.wait(lambda: "switched off" in page.focused.get_attribute("aria-label"))
    assert "KL divergence" in page.status
    page.press(Keys.ENTER)
    page.wait(lambda: page.focused.get_attribute("aria-label") == after)
    assert page.problems() == []


def test_switching_a_source_off_and_on(page, pages):
    bars = page.texts(".model:first-child ol .numbers")
    page.one(".everywhere").click()
    page.wait(lambda: page.one(".off").is_displayed())
    page.settle()
    (chip,) = page.all(".model:first-child .chip")
    source = chip.text.removesuffix(" at all sites ✕")
    last = len(pages[0].tokens(question())["tokens"]) - 1
    answer = pages[0].token(question(token=last, off=[(source, None)]))
    shown = re.search(r"KL divergence of (\S+) nats", page.one(".divergence").text)
    assert float(shown[1]) == pytest.approx(answer["divergence"], rel=0.05)
    assert all("→" in numbers for numbers in page.texts(".model:first-child ol .numbers"))
    off = [cell.text for cell in page.all("td.switched")]
    assert len(off) == sum(source in site["sources"] for site in pages[0].describe()["sites"])
    assert set(off) == {"off"}
    assert "with nothing off" in page.one(".facts").text
    chip.click()
    page.wait(lambda: not page.one(".off").is_displayed())
    assert page.texts(".model:first-child ol .numbers") == bars
    assert page.focused.get_attribute("role") == "gridcell"


def test_a_switch_that_cannot_be_is_undone(page):
    page.driver.execute_script("document.querySelector('tbody tr td').click()")
    page.one(".here").click()  # the first site's embedding
    page.wait(lambda: page.one(".off").is_displayed())
    page.driver.execute_script(
        "document.querySelector('tbody tr td:not(.none):not(.switched)').click()"
    )
    page.one(".here").click()  # and the only other source it has
    page.wait(lambda: "no source left to read" in page.one(".error").text)
    assert len(page.all(".model:first-child .chip")) == 1
    page.one(".chip").click()
    page.wait(lambda: not page.one(".error").is_displayed())


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "The text is empty: type or paste some."), (TEXT * 9, "at most 128 are taken: shorten")],
)
def test_errors_are_shown(page, text, message):
    page.type(text)
    page.wait(lambda: message in page.one(".error").text)
    page.type(TEXT)
    page.wait(lambda: not page.one(".error").is_displayed())


def test_text_is_only_text(page):
    page.type(ATTACK)
    page.wait(lambda: "onerror" in text_of_tokens(page))
    page.settle()
    assert text_of_tokens(page) == ATTACK
    assert page.all("main img, main script") == []
    assert page.script("document.title") == "dares explore"
    assert page.problems() == []


def test_odd_characters(page):
    page.type("a\n🦊\u202eb\0")
    page.wait(lambda: "↵" in text_of_tokens(page))
    page.settle()
    shown = text_of_tokens(page)
    assert shown.startswith("a↵")
    assert "ð" in shown  # the fox, in pieces, as the tokenizer names them
    assert "\u202e" not in shown
    assert "\0" not in shown


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(driver, address, width):
    page = Page(driver, address, width=width)
    assert page.script("innerWidth") == width
    assert page.script("document.documentElement.scrollWidth") <= width
    assert page.one(".token").is_displayed()


def test_contrast_is_enough_in_light_and_dark(driver, address):
    page = Page(driver, address)
    for scheme in ("light", "dark"):
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        assert page.script(CONTRASTS) == []
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# every element with words of its own whose colour stands out less than WCAG's 4.5 to 1
CONTRASTS = """(() => {
  const parts = (css) => css.match(/[\\d.]+/g).map(Number);
  const light = (css) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parts(css).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const css = getComputedStyle(e).backgroundColor;
      if ((parts(css)[3] ?? 1) === 1) return css;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${e.tagName} ${e.className} ${e.textContent} ${ratio}`);
  }
  return found;
})()"""


def test_a_server_that_has_gone(driver, pages):
    with serving(pages) as address:
        page = Page(driver, address)
    page.type("something else")
    page.wait(lambda: "server does not answer" in page.one(".error").text)
