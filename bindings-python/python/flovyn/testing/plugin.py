"""The pytest plugin."""

from __future__ import annotations
