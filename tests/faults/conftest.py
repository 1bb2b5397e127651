from tests.train.conftest import undisturbed, workshop  # noqa: F401
