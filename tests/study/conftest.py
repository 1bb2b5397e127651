from tests.train.conftest import workshop  # noqa: F401
