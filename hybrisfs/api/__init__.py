"""The requests and answers of the control socket: a record for each of them, and for news of the progress.

`request` says how records become messages; each other module describes one noun. The daemon, its commands and
the dashboard import these, and nothing here imports them.
"""
