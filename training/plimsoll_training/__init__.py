"""Trains Plimsoll's learned rate controller on the simulators that it is judged by."""

from .fleets import Fleets

__all__ = ["Fleets"]
