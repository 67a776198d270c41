"""Which tokenizers the property tests run on."""

from __future__ import annotations

import pytest

from tests.inference.families import Missing
from tests.inference.random_ids import EVERY
from tests.inference.samples import model


@pytest.fixture(scope="session", params=EVERY)
def name(request: pytest.FixtureRequest) -> str:
    """Each tokenizer's name. One that no registry gives is skipped, and says so."""
    try:
        model(request.param)
    except Missing as exc:
        pytest.skip(str(exc))
    return str(request.param)
