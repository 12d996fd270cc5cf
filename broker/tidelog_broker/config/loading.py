"""Reads the settings of a broker: flags win over the environment (``TIDELOG_*``), that over a YAML file, that
over defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from tidelog_broker.config.sentences import SettingsInvalid, sentence, shortened, unknown_setting
from tidelog_broker.config.settings import Settings


def load(config_file: Path | None = None, **flags: Any) -> Settings:
    """Settings from all sources; raises `SettingsInvalid`."""
    from_file = _read_file(config_file) if config_file is not None else {}

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=from_file)

    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings.model_validate(FromFile(**given).model_dump())
    except ValidationError as error:
        # Not chained: pydantic's message may hold the credentials of NATS servers.
        raise SettingsInvalid([sentence(problem) for problem in error.errors()]) from None
    except SettingsError:
        # Listeners are the only setting that is written as JSON in the environment.
        name = "TIDELOG_LISTENERS"
        text = next((value for key, value in os.environ.items() if key.upper() == name), "")
        raise SettingsInvalid(
            [f"{name} is {shortened(text)}; write a JSON list, for example '[\"internal=127.0.0.1:9210\"]'"]
        ) from None


def _read_file(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, not checked yet."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise SettingsInvalid(
            [
                f"the settings file {path} cannot be read: {error.strerror or error}; give the path of a "
                f"YAML file"
            ]
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise SettingsInvalid(
            [f"the settings file {path} is not valid YAML: {where}{error.problem}"]
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        # Bytes that are not text, or dates that do not exist.
        reason = str(error).partition("\n")[0]
        raise SettingsInvalid([f"the settings file {path} is not valid YAML: {reason}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        # Not shown: it may hold the credentials of NATS servers.
        kind = "a list" if isinstance(content, list) else "a single value"
        raise SettingsInvalid(
            [
                f"the settings file {path} holds {kind}; write each setting on a line, for example "
                f"data_dir: /data"
            ]
        )
    unknown = [name for name in content if str(name).lower() not in Settings.model_fields]
    if unknown:
        raise SettingsInvalid([f"in the settings file {path}: {unknown_setting(name)}" for name in unknown])
    return content
