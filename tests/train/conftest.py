import pytest

from tests.train.runs import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """One text for all tests; a run's folder is named after what it shows."""
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def undisturbed(workshop):
    """The run that all others are compared with."""
    return workshop.train("undisturbed").folder
