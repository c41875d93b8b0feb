"""What "delivered" means; it lives in `freshband.federated.uplink`."""

from __future__ import annotations

from freshband.federated.uplink import DeadlineUplink, SimulatedUplink, Uplink

__all__ = ["DeadlineUplink", "SimulatedUplink", "Uplink"]
