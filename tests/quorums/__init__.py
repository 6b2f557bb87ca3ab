"""Registers over clouds: names, protocols under random schedules and lying clouds, real stores."""
