"""What the control socket is asked and what it answers: one record for each request, answer and progress.

`request` says how records become messages; each other module describes one noun. The daemon, its commands and
the dashboard import these, and nothing here imports them.
"""
