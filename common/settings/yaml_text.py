"""Parse YAML safely, with errors that name the line."""

from __future__ import annotations

from typing import Any

import yaml

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import abbreviated


class _Loader(yaml.SafeLoader):
    """A safe loader that rejects duplicate keys, of which PyYAML would silently keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - as inherited
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {abbreviated(key.value)}; remove one",
                    problem_mark=key.start_mark,
                )
            seen.add((key.tag, key.value))
        return node


def parse_yaml(text: str, source: str) -> object:
    """Parse one YAML document; messages call it `source`.

    Raises:
        ConfigurationError: the text is not valid YAML. The message names the line if it is known.
    """
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigurationError(f"{source}: {where}{error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError(
            f"{source}: line {line}: contains a control character; remove it"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{source}: is nested too deeply for a configuration") from None
    except ValueError as error:
        # For example 2026-02-30, which YAML parses as a date.
        raise ConfigurationError(f"{source}: invalid value ({error}); put text in quotes") from None
