"""Tools for testing agents: forced re-entry, a virtual clock, recorded cassettes."""

from __future__ import annotations
