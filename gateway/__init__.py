"""The S3 gateway: the containers of a volume's key-value store as buckets, for every program that speaks S3.

`server` runs it, a process of its own that is a client of the daemon. Without IO: `signature` decides who is
heard, `chunked` takes bodies apart that are signed piece by piece, `documents` reads and writes XML,
`preconditions` knows ranges and conditional headers, `listing` folds keys at a delimiter. `app` answers
requests by `objects`, `uploads` and `collector`, which ask the daemon through `conversations`.
"""
