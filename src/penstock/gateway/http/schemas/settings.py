"""Compatibility levels and modes, and whether a schema would be compatible."""

from collections.abc import Sequence
from typing import Any

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Request, Response
from penstock.gateway.http.schemas.dialect import (
    SchemaRequest,
    answer,
    changed,
    check_references,
    context_in,
    flag,
    on_subject,
    parameters,
    routes,
    subject_in,
    version_in,
)
from penstock.gateway.http.schemas.subjects import DESCRIBE
from penstock.gateway.shared.access import CLUSTER, Need, Rule
from penstock.metadata.acls import Operation
from penstock.registry.changes import DeleteConfig, DeleteMode, SetConfig, SetMode
from penstock.registry.compatibility import previous_of
from penstock.registry.errors import invalid_level, invalid_mode, no_config, no_mode, version_not_found
from penstock.registry.names import DEFAULT_CONTEXT
from penstock.registry.view import LATEST, READWRITE, RegistryView, Version

ROUTES = routes()

_CONFIG_FIELDS = (
    "alias",
    "normalize",
    "validateFields",
    "validateNames",
    "compatibilityPolicy",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""Besides `compatibility`. They are kept and shown; `normalize` is acted on."""

_SEEN, _CHANGED = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_OF_ALL = {each: Rule((Need(each, CLUSTER),)) for each in (_SEEN, _CHANGED)}
_OF_SUBJECT = {each: Rule((on_subject(each),)) for each in (_SEEN, _CHANGED)}


def _scope(request: Request) -> str | None:
    """The subject or the context that a setting is for; None for all."""
    if "subject" in request.path:
        return subject_in(request, may_be_context=True)
    context = context_in(request)
    return None if context == DEFAULT_CONTEXT else f":{context}:"


# -- compatibility ---------------------------------------------------------------------------------------


def _check(
    gateway: Any, request: Request, versions: Sequence[Version], view: RegistryView
) -> Steps[Response]:
    check_references(gateway.context, request)
    messages = yield from gateway.schemas.check(
        view,
        subject_in(request),
        request.body.value,
        list(versions),
        is_normalized=flag(request, "normalize"),
    )
    found: dict[str, Any] = {"is_compatible": not messages}
    if flag(request, "verbose"):
        found["messages"] = messages
    return answer(found)


@ROUTES.add(
    "POST",
    "/compatibility/subjects/{subject}/versions",
    "Whether a schema is compatible with a subject, by its level.",
    query=parameters("verbose", "normalize"),
    body=SchemaRequest,
    rule=DESCRIBE,
    changes=False,
)
def _check_all(gateway: Any, request: Request) -> Steps[Response]:
    subject = subject_in(request)
    view: RegistryView = yield from gateway.schemas.latest()
    level = view.config_in_scope(subject)["compatibilityLevel"]
    return (yield from _check(gateway, request, previous_of(level, view.versions(subject)), view))


@ROUTES.add(
    "POST",
    "/compatibility/subjects/{subject}/versions/{version}",
    "Whether a schema is compatible with a version.",
    query=parameters("verbose", "normalize"),
    body=SchemaRequest,
    rule=DESCRIBE,
    changes=False,
)
def _check_one(gateway: Any, request: Request) -> Steps[Response]:
    subject, number = subject_in(request), version_in(request)
    view: RegistryView = yield from gateway.schemas.latest()
    versions = view.versions(subject)
    wanted = versions[-1:] if number == LATEST else [each for each in versions if each.version == number]
    if not wanted and number != LATEST:
        raise version_not_found(number)
    return (yield from _check(gateway, request, wanted, view))


# -- levels ------------------------------------------------------------------------------------------------


def _config(gateway: Any, request: Request) -> Steps[Response]:
    scope = _scope(request)
    view: RegistryView = yield from gateway.schemas.latest()
    if scope is None or flag(request, "defaultToGlobal"):
        return answer(view.config_in_scope(scope))
    config = view.config(scope)
    if config is None:
        raise no_config(scope)
    return answer({name: value for name, value in config.items() if name != "subject"})


def _set_config(gateway: Any, request: Request) -> Steps[Response]:
    body: dict[str, Any] = request.body
    fields = {name: body[name] for name in _CONFIG_FIELDS if name in body}
    level = body.get("compatibility", body.get("compatibilityLevel"))
    if level is not None:
        fields["compatibilityLevel"] = level
    if not fields:
        raise invalid_level()
    return changed((yield from gateway.schemas.change(request.session, SetConfig(_scope(request), fields))))


def _delete_config(gateway: Any, request: Request) -> Steps[Response]:
    return changed((yield from gateway.schemas.change(request.session, DeleteConfig(_scope(request)))))


# -- modes -------------------------------------------------------------------------------------------------


def _mode(gateway: Any, request: Request) -> Steps[Response]:
    scope = _scope(request)
    view: RegistryView = yield from gateway.schemas.latest()
    if scope is None or flag(request, "defaultToGlobal"):
        return answer({"mode": view.mode_in_scope(scope)})
    mode = view.mode(scope)
    if mode is None:
        raise no_mode(scope)
    return answer({"mode": mode or READWRITE})


def _set_mode(gateway: Any, request: Request) -> Steps[Response]:
    mode = request.body.get("mode")
    if not isinstance(mode, str):
        raise invalid_mode()
    change = SetMode(_scope(request), mode, flag(request, "force"))
    return changed((yield from gateway.schemas.change(request.session, change)))


def _delete_mode(gateway: Any, request: Request) -> Steps[Response]:
    return changed((yield from gateway.schemas.change(request.session, DeleteMode(_scope(request)))))


for path, whose, rules in (("", "all subjects", _OF_ALL), ("/{subject}", "a subject", _OF_SUBJECT)):
    ROUTES.add(
        "GET",
        f"/config{path}",
        f"The compatibility level of {whose}.",
        query=parameters("defaultToGlobal"),
        rule=rules[_SEEN],
    )(_config)
    ROUTES.add(
        "PUT",
        f"/config{path}",
        f"Set the compatibility level of {whose}.",
        body=dict[str, Any],
        rule=rules[_CHANGED],
    )(_set_config)
    ROUTES.add(
        "DELETE", f"/config{path}", f"Unset the compatibility level of {whose}.", rule=rules[_CHANGED]
    )(_delete_config)
    ROUTES.add(
        "GET", f"/mode{path}", f"The mode of {whose}.", query=parameters("defaultToGlobal"), rule=rules[_SEEN]
    )(_mode)
    ROUTES.add(
        "PUT",
        f"/mode{path}",
        f"Set the mode of {whose}.",
        query=parameters("force"),
        body=dict[str, Any],
        rule=rules[_CHANGED],
    )(_set_mode)
    ROUTES.add("DELETE", f"/mode{path}", f"Unset the mode of {whose}.", rule=rules[_CHANGED])(_delete_mode)
