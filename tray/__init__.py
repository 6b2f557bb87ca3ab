"""An icon in the panel of the desktop: is everything safe, and a menu. A process of the session's own."""
