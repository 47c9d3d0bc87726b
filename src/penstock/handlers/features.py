"""Features moved up and down: UpdateFeatures. ApiVersions shows where they are."""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata import Result
from penstock.metadata.controller.requests import FeatureUpdate, UpdateFeatures, UpgradeType
from penstock.metadata.versions import UNSERVED
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import ask, wait_ms_of
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal


def update_features(context: Context, call: Call) -> Any | Promise[Any]:
    """UpdateFeatures 0 to 2: all of the changes are made, or none.

    The first one that may not be is told, with INVALID_UPDATE_VERSION for the whole. Of a feature that is named twice
    the last word counts.

    Version 0 has one kind of downgrade, the safe one; 1 has the unsafe one, and `validate_only` (KIP-778). Both have
    a row for each feature if all went well; version 2 has none, the error being one for all.
    """
    make, request = call.make, call.message
    updates = {each.feature: _update(each) for each in request.feature_updates}

    def respond(answer: Any) -> Any:
        result = refusal(answer) if isinstance(answer, KafkaError) else _first_refusal(answer)
        rows: dict[str, Any] = {}
        if call.version < 2:
            names = updates if result.code is ErrorCode.NONE else ()
            rows["results"] = tuple(
                make.UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None)
                for name in names
            )
        return make.UpdateFeaturesResponse(
            throttle_time=NO_THROTTLE, error_code=result.code, error_message=result.message, **rows
        )

    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(KafkaError(DENIED_CLUSTER.message or "", DENIED_CLUSTER.code))
    for update in updates.values():
        if update.name in UNSERVED and update.level > context.image.features.get(update.name, 0):
            why = f"{update.name} cannot be turned on: what it brings is not served"
            return respond(KafkaError(why, ErrorCode.INVALID_UPDATE_VERSION))
    asked = UpdateFeatures(tuple(updates.values()), getattr(request, "validate_only", False))
    return ask(context, asked, wait_ms_of(request.timeout), respond)


def _update(each: Any) -> FeatureUpdate:
    kind = getattr(each, "upgrade_type", None)
    if kind is None:
        kind = UpgradeType.SAFE_DOWNGRADE if each.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(each.feature, each.max_version_level, kind)


def _first_refusal(results: dict[str, Result]) -> Result:
    for result in results.values():
        if result.code is not ErrorCode.NONE:
            return Result(result.code, f"no feature was changed: {result.message}")
    return Result()


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.UPDATE_FEATURES: update_features}
