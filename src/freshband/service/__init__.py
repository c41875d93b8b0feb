"""The coordinator as a service: HTTP with JSON for programs in any language.

`freshband serve` runs it. Every call of `freshband.Coordinator` is a request; a request that is
repeated is answered and not executed again, and what was answered survives a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freshband._lazy import import_on_use

__all__ = ["Catalogue", "create_app", "serve"]

if TYPE_CHECKING:
    from freshband.service.app import create_app
    from freshband.service.catalogue import Catalogue
    from freshband.service.server import serve

__getattr__, __dir__ = import_on_use(
    __name__,
    {".app": ["create_app"], ".catalogue": ["Catalogue"], ".server": ["serve"]},
)
