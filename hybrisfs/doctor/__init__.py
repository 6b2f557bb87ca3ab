"""`hybrisfs doctor`: is this machine fit for HybrisFS, and is what it needs in order? Changes nothing.

Each module looks at one subject and knows no other. None needs a daemon.
"""
