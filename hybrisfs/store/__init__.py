"""What is on the local disk: the SQLite database and the journal of file bytes."""
