"""The dashboard: a page on loopback, served by a process of its own that is a client of the daemon.

`server` runs it, `guard` refuses strangers, `api` answers the page, `actions` says what the page may have
the daemon do, `jobs` carries out what takes long, `merging` merges versions in conflict, `static/` is the
page.
"""
