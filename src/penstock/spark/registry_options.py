"""Options of the schema registry, for the source, the sink and the functions.

Names are those of Confluent's clients. Secrets may be references such as `${env:NAME}`, which are read where a query
is planned; tasks get the result pickled.
"""

from base64 import b64encode
from typing import Final

from penstock.base.settings import BadSetting
from penstock.client.client_config import ClientConfig
from penstock.client.referenced_values import resolve
from penstock.client.schema_registry import RegistrySettings, check_url
from penstock.client.security import ClientTls
from penstock.client.security_settings import ClientProperties
from penstock.spark.errors import BadOption
from penstock.spark.options import OptionValues

URL: Final = "schema.registry.url"
USER_INFO: Final = "schema.registry.basic.auth.user.info"
TOKEN: Final = "schema.registry.bearer.auth.token"
_PREFIX: Final = "schema.registry."
_SSL: Final = """
ssl.truststore.location ssl.truststore.type ssl.truststore.password ssl.keystore.location ssl.keystore.type
ssl.keystore.password ssl.key.password ssl.endpoint.identification.algorithm
"""
REGISTRY_NAMES: Final = (URL, USER_INFO, TOKEN, *(_PREFIX + each for each in _SSL.split()))


def read_registry(values: OptionValues) -> RegistrySettings | None:
    """The registry that options name. Raises BadOption."""
    text = values.text(URL)
    if text is None:
        given = [name for name in REGISTRY_NAMES if values.text(name) is not None]
        if given:
            raise BadOption(f"option {given[0]} is given without {URL}")
        return None
    urls = tuple(each.strip() for each in text.split(",") if each.strip())
    if not urls or not all(map(check_url, urls)):
        raise BadOption(f"option {URL} is {text!r}, expected http://HOST:PORT or https://HOST:PORT")
    try:
        return RegistrySettings(urls, _authorization(values), _tls(values, urls))
    except BadSetting as error:
        raise BadOption(str(error)) from None


def _authorization(values: OptionValues) -> str | None:
    user_info, token = values.text(USER_INFO), values.text(TOKEN)
    if user_info is not None and token is not None:
        raise BadOption(f"options {USER_INFO} and {TOKEN} are given, expected one of them")
    if token is not None:
        return f"Bearer {resolve(token, f'option {TOKEN}').strip()}"
    if user_info is None:
        return None
    pair = resolve(user_info, f"option {USER_INFO}")
    if ":" not in pair:
        raise BadOption(f"option {USER_INFO} has no colon, expected USER:PASSWORD")
    return f"Basic {b64encode(pair.encode()).decode()}"


def _tls(values: OptionValues, urls: tuple[str, ...]) -> ClientTls | None:
    given = {
        name.removeprefix(_PREFIX): text
        for name in REGISTRY_NAMES
        if name.startswith(f"{_PREFIX}ssl.") and (text := values.text(name)) is not None
    }
    if not given and not any(each.startswith("https:") for each in urls):
        return None
    settings = {"security.protocol": "SSL", **given}
    return ClientConfig(ClientProperties(settings, lambda name: f"option {_PREFIX}{name}")).security().tls
