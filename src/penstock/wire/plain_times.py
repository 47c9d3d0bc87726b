"""Messages whose 64-bit times are plain milliseconds here, instead of kio's datetimes and timedeltas.

kio reads neither the -1 that Kafka answers for a time that does not exist, nor a duration of more than 2.7 million
years, which Kafka takes.
"""

from dataclasses import MISSING, dataclass, field, fields
from types import ModuleType
from typing import Any, Final

from .catalogue import Api

PLAIN_TIMES: Final = frozenset(
    {
        Api.CREATE_DELEGATION_TOKEN,
        Api.RENEW_DELEGATION_TOKEN,
        Api.EXPIRE_DELEGATION_TOKEN,
    }
)
_TIMES: Final = ("datetime_i64", "timedelta_i64")
_CLASS_ATTRIBUTES: Final = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


def with_plain_times(module: ModuleType, name: str) -> ModuleType:
    """The classes of a message, of which the outermost, `name`, has plain times."""
    changed = ModuleType(module.__name__, module.__doc__)
    changed.__dict__.update(module.__dict__)
    setattr(changed, name, _plain(getattr(module, name)))
    return changed


def _plain(entity_type: type[Any]) -> type[Any]:
    from kio.static.primitive import i64  # noqa: PLC0415  (with the classes)

    own = vars(entity_type)
    annotations = {each: own["__annotations__"][each] for each in _CLASS_ATTRIBUTES}
    body: dict[str, Any] = {each: own[each] for each in (*_CLASS_ATTRIBUTES, "__module__")}
    for each in fields(entity_type):
        is_time = each.metadata.get("kafka_type") in _TIMES
        annotations[each.name] = i64 if is_time else each.type
        metadata = {"kafka_type": "int64"} if is_time else dict(each.metadata)
        default = {} if each.default is MISSING else {"default": each.default}
        body[each.name] = field(metadata=metadata, **default)
    made = type(entity_type.__name__, (), {**body, "__annotations__": annotations})
    return dataclass(frozen=True, slots=True, kw_only=True)(made)
