"""Claims: one worker a run, whoever is slow, dead or asleep."""

import os
import signal
import time

import pytest

from dares.study import claims
from dares.study.claims import CLAIMS, DEATHS, LOST, Observer, died_with
from tests.faults.children import Child


def take_and_hold(run, seconds, stale=claims.STALE):
    claim = Observer(stale).take(run)
    if claim is None:
        print("none")
        return
    with claim:
        print("taken", flush=True)
        time.sleep(seconds)


def race(run, gate):
    """Spins until the gate opens, then takes; what it got is its output."""
    while not gate.exists():
        pass
    print("taken" if Observer().take(run) else "none", flush=True)
    time.sleep(2)  # alive, so that the others see a claim that is held


def test_of_many_one_gets_it(tmp_path):
    gate = tmp_path / "gate"
    racers = [Child(tmp_path, race, tmp_path / "run", gate) for _ in range(4)]
    time.sleep(0.3)
    gate.touch()
    outputs = [racer.end()[1].strip() for racer in racers]
    assert sorted(outputs) == ["none", "none", "none", "taken"]


def test_given_back_it_is_free(tmp_path):
    observer = Observer()
    with observer.take(tmp_path) as claim:
        assert claim.path.name == "0001"
        assert observer.is_held(tmp_path)
        assert observer.take(tmp_path) is None
    assert not observer.is_held(tmp_path)
    with observer.take(tmp_path) as again:
        assert again.path.name == "0002"  # a number is never used twice


def test_who_looked_early_and_decided_late_does_not_get_it(tmp_path, monkeypatch):
    with Observer().take(tmp_path):
        pass
    slow, fast = Observer(), Observer()
    judge, taken = slow._is_warm, []

    def overtaken(claim):
        free = judge(claim)  # it is free, and now someone is faster
        taken.append(fast.take(tmp_path))
        return free

    monkeypatch.setattr(slow, "_is_warm", overtaken)
    assert slow.take(tmp_path) is None
    assert taken[0].path.name == "0002"


def test_a_dead_owner_is_seen_at_once(tmp_path):
    child = Child(tmp_path, take_and_hold, tmp_path / "run", 60)
    child.wait_for(child.output, "taken")
    assert Observer().take(tmp_path / "run") is None
    child.signal(signal.SIGKILL)
    child.end()
    claim = Observer().take(tmp_path / "run")
    assert claim.path.name == "0002"


def test_a_run_with_which_several_workers_died_is_deadly(tmp_path):
    observer, run = Observer(), tmp_path / "run"
    assert not observer.is_deadly(run)
    for death in range(1, DEATHS + 1):
        child = Child(tmp_path, take_and_hold, run, 60)
        child.wait_for(child.output, "taken")
        assert not died_with(run, child.pid - 1)
        assert not observer.is_deadly(run)  # the one that holds it is not dead
        child.signal(signal.SIGKILL)
        child.end()
        assert died_with(run, child.pid)
        assert observer.is_deadly(run) == (death == DEATHS)
    with observer.take(run):
        assert observer.is_deadly(run)
    assert observer.is_deadly(run)


def test_a_worker_that_gave_its_run_back_did_not_die_with_it(tmp_path):
    for _ in range(DEATHS):
        with Observer().take(tmp_path):
            pass
    assert not died_with(tmp_path, os.getpid())
    assert not Observer().is_deadly(tmp_path)


def elsewhere(monkeypatch):
    """From here on this process is on another machine, where process numbers say nothing."""
    monkeypatch.setattr(claims, "place", lambda: "another machine")


def test_on_another_machine_the_heartbeat_counts(tmp_path, monkeypatch):
    observer = Observer(stale=1.0)
    claim = Observer().take(tmp_path, beat=0.1)
    with claim:
        elsewhere(monkeypatch)
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            assert observer.take(tmp_path) is None
            time.sleep(0.1)
        claim._end.set()  # its heart stands still, as if the machine had died
        claim._thread.join()
        assert observer.take(tmp_path) is None
        time.sleep(1.2)
        taken = observer.take(tmp_path)
        assert taken.path.name == "0002"


def test_the_age_of_a_time_stamp_is_not_asked(tmp_path, monkeypatch):
    """Another machine's clock may be hours off."""
    with Observer().take(tmp_path) as claim:
        elsewhere(monkeypatch)
        os.utime(claim.path, (0, 0))
        assert Observer(stale=1.0).take(tmp_path) is None


def sleep_and_wake(run):
    claim = Observer().take(run, beat=0.2)
    with claim:
        print("taken", flush=True)
        time.sleep(60)


def test_who_overslept_ends_at_once(tmp_path):
    run = tmp_path / "run"
    child = Child(tmp_path, sleep_and_wake, run)
    child.wait_for(child.output, "taken")
    (run / CLAIMS / "0002").write_text('{"place": "elsewhere", "pid": 1, "free": false}')
    code, output = child.end()
    assert code == LOST
    assert "0001 was taken over: this worker ends" in output


def test_a_heartbeat_outlives_a_file_system_that_does_not_answer(tmp_path, monkeypatch):
    listing, failures = os.listdir, []

    def stale(path):
        if str(path).startswith(str(tmp_path)) and len(failures) < 3:
            failures.append(path)
            raise OSError(116, "Stale file handle")
        return listing(path)

    with Observer().take(tmp_path, beat=0.01) as claim:
        monkeypatch.setattr(claims.os, "listdir", stale)
        while len(failures) < 3:
            time.sleep(0.01)
        os.utime(claim.path, ns=(0, 0))
        end = time.monotonic() + 30
        while claim.path.stat().st_mtime_ns == 0:
            assert time.monotonic() < end, "the heart has stopped"
            time.sleep(0.01)


def test_a_claim_that_is_just_being_written_is_held(tmp_path):
    (tmp_path / CLAIMS).mkdir()
    (tmp_path / CLAIMS / "0001").write_text("")
    assert Observer().is_held(tmp_path)
    assert Observer().take(tmp_path) is None


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(claims.os, "open", full)
    with pytest.raises(ValueError, match=r"0001 could not be written \(the disk is full\)"):
        Observer().take(tmp_path)
