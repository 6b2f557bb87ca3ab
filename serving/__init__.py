"""A folder of a mounted volume for phones, other systems and televisions at home, by WebDAV and SFTP.

`server` and `sftp_server` run them, processes of their own that reach the volume through its mount, as any
program does. `door` lets connections in, `users` says who may, `certificate` and `host_key` are what clients
know them by. `app` answers requests of WebDAV: it hands them to WsgiDAV, which knows the protocol, and that
reaches files by `resources`. `sftp` and `visitor` do so with asyncssh. `folder` does what is asked with
files, all of it below one folder: `beneath` has the kernel see to that, `mounted` says where the folder is.
"""
