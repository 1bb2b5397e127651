"""A page in a real browser: a server in a thread, and Chromium without a window."""

import shutil
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec

import uvicorn

from dares.explore.app import build_app
from dares.explore.serve import HOST, listen

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",  # which root must do without
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def obstacle():
    """Why no browser can be started here; None if one can."""
    for name, found in (("chromium", CHROMIUM), ("chromedriver", DRIVER)):
        if found is None:
            return f"{name} is not installed (apt-get install chromium chromium-driver)"
    return None if find_spec("selenium") else "selenium is not installed"


@contextmanager
def serving(explorers):
    """The address of a page about the models."""
    with listen(0) as listener:
        server = uvicorn.Server(uvicorn.Config(build_app(explorers), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def chromium(folder):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """What a reader does with the page, and sees."""

    def __init__(self, driver, address, *, width=1280):
        self.driver = driver
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.problems()  # those of earlier pages
        driver.get(address)
        self.settle()

    def settle(self):
        """Wait until every model has answered."""
        self.wait(
            lambda: (
                (states := [each.get_attribute("aria-busy") for each in self.all(".model")])
                and set(states) == {"false"}
            )
        )

    def wait(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not so after {seconds} s; {self.problems()}"
            time.sleep(0.05)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector, model=0):
        return self.all(".model")[model].find_element("css selector", selector)

    def texts(self, selector):
        return [each.text for each in self.all(selector)]

    def type(self, text):
        """A new text, as if pasted."""
        box = self.driver.find_element("id", "text")
        self.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
            box,
            text,
        )

    def press(self, *keys):
        """Keys, at whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)
        self.settle()

    @property
    def focused(self):
        return self.driver.switch_to.active_element

    @property
    def status(self):
        return self.driver.find_element("id", "status").text

    def script(self, code):
        return self.driver.execute_script(f"return {code}")

    def problems(self):
        """What the browser's console complains of."""
        return [entry["message"] for entry in self.driver.get_log("browser")]
