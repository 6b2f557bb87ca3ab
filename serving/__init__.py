"""A folder of a mounted volume for phones, other systems and televisions at home, by WebDAV.

`server` runs it, a process of its own that reaches the volume through its mount, as any program does. `door`
lets connections in, `users` says who may, `certificate` is what clients know it by. `app` answers requests:
it hands them to WsgiDAV, which knows the protocol, and that reaches files by `resources`. `folder` does what
is asked with files, all of it below one folder: `beneath` has the kernel see to that, `mounted` says where
the folder is.
"""
