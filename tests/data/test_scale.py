"""Speed on real text, and memory that does not grow with the input."""

import subprocess
import sys
import time

import numpy as np
import pytest

from dares.data.prepare import prepare

# VmHWM, not getrusage: the latter's peak outlives exec, and would be that of pytest
PEAK_CHILD = """
import re, sys
from pathlib import Path
from dares.data.prepare import prepare

data = prepare(sys.argv[1], cache=sys.argv[2])
status = Path("/proc/self/status").read_text()
print(data.summary()["tokens"], re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])
"""


@pytest.mark.slow
def test_a_core_packs_a_megabyte_a_second(tmp_path, capsys):
    start = time.process_time()  # of all threads: what it costs, however many cores share it
    data = prepare(cache=tmp_path)
    seconds = time.process_time() - start
    speed = data.summary()["text_bytes"] / 1e6 / seconds
    with capsys.disabled():
        print(f"\n{speed:.2f} MB of text a second of one core, tokenizer trained on the way")
    assert speed > 1


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_flat(tmp_path, capsys):
    peaks = {}
    for megabytes in (20, 200):
        source = tmp_path / f"{megabytes}.txt"
        write_words(source, megabytes)
        result = subprocess.run(
            [sys.executable, "-c", PEAK_CHILD, str(source), str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        tokens, peak = map(int, result.stdout.split())
        assert tokens > megabytes * 1e6 / 8
        peaks[megabytes] = peak / 1024
        source.unlink()
    with capsys.disabled():
        print(f"\npeak memory in MiB for inputs in MB: {peaks}")
    assert peaks[200] < peaks[20] + 40


def write_words(path, megabytes):
    """Paragraphs of made-up words, rare and frequent as in a language."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfw"))
    words = np.array(
        ["".join(random.choice(letters, random.integers(1, 10))) for _ in range(50_000)]
    )
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            picked = words[np.minimum(random.zipf(1.2, 100_000), len(words)) - 1]
            for paragraph in np.split(picked, 500):
                file.write(" ".join(paragraph) + ".\n\n")
