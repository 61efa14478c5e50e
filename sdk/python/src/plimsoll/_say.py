"""What the SDK says: at most one line for each cause, as a warning of the logger `plimsoll`."""

from __future__ import annotations

import logging

_logger = logging.getLogger("plimsoll")
_said: set[str] = set()


def once(cause: str, text: str) -> None:
    """Says `text` unless something was said for this cause before. Causes are words of this package, so there are few."""
    if cause in _said:
        return
    _said.add(cause)
    try:
        _logger.warning("%s", text)
    except Exception:  # a handler of the application's that fails is not our affair
        pass


def forget() -> None:
    """Everything may be said again; for tests."""
    _said.clear()
