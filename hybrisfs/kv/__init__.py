"""The key-value face of a volume (Hybris): values dispersed one by one, their metadata on this device."""
