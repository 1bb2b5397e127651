import pytest

from dares.train.loop import prepare_data
from tests.train.runs import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """One text for all tests, its rows ready; a run's folder is named after what it shows."""
    made = Workshop(tmp_path_factory.mktemp("workshop"))
    prepare_data(made.recipe(), made.cache)
    return made


@pytest.fixture(scope="session")
def undisturbed(workshop):
    """The run that all others are compared with."""
    return workshop.train("undisturbed").folder
