"""The process that holds all volumes of one user, and serves their mounts and the control socket."""
