"""Levels of the cluster's features.

    UpdateFeatures 0 to 2

ApiVersions returns the current levels.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import FeatureUpdate, Result, UpdateFeatures, UpgradeType
from penstock.metadata.versions import UNSERVED
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import submit, wait_ms_of
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.waiting import in_steps


@in_steps
def update_features(context: Context, call: Call) -> Steps[Any]:
    """UpdateFeatures 0 to 2: change all features, or none. Needs ALTER on the cluster.

    The first invalid change rejects the request with INVALID_UPDATE_VERSION. If a feature is named twice, the last
    change counts.

    Version notes: 0 has safe downgrades only; 1 adds unsafe ones and `validate_only` (KIP-778). Both return a row for
    each feature on success; 2 returns one error for all.
    """
    make, request = call.make, call.message
    updates = {each.feature: _update(each) for each in request.feature_updates}

    def respond(result: Result) -> Any:
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
        return respond(DENIED_CLUSTER)
    for update in updates.values():
        if update.name in UNSERVED and update.level > context.image.features.get(update.name, 0):
            why = f"Feature {update.name} cannot be enabled: its APIs are not supported."
            return respond(Result(ErrorCode.INVALID_UPDATE_VERSION, why))
    changes = UpdateFeatures(tuple(updates.values()), getattr(request, "validate_only", False))
    try:
        results = yield submit(context, changes, wait_ms_of(request.timeout))
    except KafkaError as error:
        return respond(refusal(error))
    return respond(_first_refusal(results))


def _update(each: Any) -> FeatureUpdate:
    kind = getattr(each, "upgrade_type", None)
    if kind is None:
        kind = UpgradeType.SAFE_DOWNGRADE if each.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(each.feature, each.max_version_level, kind)


def _first_refusal(results: dict[str, Result]) -> Result:
    for result in results.values():
        if result.code is not ErrorCode.NONE:
            return Result(result.code, f"No feature was changed: {result.message}")
    return Result()


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.UPDATE_FEATURES: update_features}
