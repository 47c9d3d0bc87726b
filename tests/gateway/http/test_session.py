"""Who a caller is, and what the console may do: /session."""

import json
from typing import Any

import pytest
from tests.server.test_door_security import ALICE, GUARDED, ask

from penstock import __version__
from penstock.testing import Broker


def told(response: Any) -> dict[str, Any]:
    assert response.status == 200, response.data
    found: dict[str, Any] = json.loads(response.data)
    return found


@pytest.mark.parametrize("mode", ["full", "read-only", "off"])
def test_the_session_says_the_consoles_mode(mode: str) -> None:
    with Broker(http=True, settings={"console.mode": mode}) as broker:
        found = told(ask(broker, "/session"))
        assert found["mode"] == mode
        assert (found["principal"], found["login_required"], found["schemes"]) == (
            "User:ANONYMOUS",
            False,
            [],
        )
        assert (found["node_id"], found["version"]) == (1, __version__)
        assert found["cluster_id"]


def test_before_a_log_in_the_session_says_only_how_to_log_in() -> None:
    with Broker(http=True, settings=GUARDED) as broker:
        assert told(ask(broker, "/session")) == {
            "principal": None,
            "mode": "full",
            "login_required": True,
            "schemes": ["password"],
            "node_id": None,
            "cluster_id": None,
            "version": None,
        }
        assert told(ask(broker, "/session", as_user=ALICE))["principal"] == "User:alice"
