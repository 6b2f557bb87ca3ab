"""An update on its way in: look at the clouds, verify, take."""
