"""Any fleet: more clients than channels, late outcomes, clients and channels that come and go."""
