"""Many devices, links and clouds under one seeded scheduler and a virtual clock."""
