"""Clients on a GPU: their local training is recorded once as a CUDA graph and then replayed."""

from freshband.federated.clients.gpu.graphs import GraphedClients

__all__ = ["GraphedClients"]
