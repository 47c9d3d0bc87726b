"""The routes of the schema registry, as Confluent's has them, for its clients.

They are served at the registry's port with these paths, and at the HTTP port under `/schema-registry`. Most exist
also under `/contexts/{context}`, where subjects without a context are in that one.

    dialect         content type, errors, parameters as Confluent's clients send them
    subjects        subjects and their versions
    lookups         schemas by id and guid
    settings        compatibility levels, modes, checks of compatibility
"""

from collections.abc import Sequence

from penstock.gateway.http.protocol.messages import Route
from penstock.gateway.http.schemas import lookups, settings, subjects

PREFIX = "/schema-registry"
"""Of the paths at the HTTP port."""


def registry_routes(prefix: str = "") -> Sequence[Route]:
    plain = (*subjects.ROUTES, *lookups.ROUTES, *settings.ROUTES)
    within = [
        each for each in plain if each.path.startswith(("/subjects", "/schemas", "/config", "/mode", "/comp"))
    ]
    return (
        *(each._replace(path=f"{prefix}{each.path}") for each in plain),
        *(each._replace(path=f"{prefix}/contexts/{{context}}{each.path}") for each in within),
    )
