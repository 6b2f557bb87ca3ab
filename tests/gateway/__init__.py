"""Tests of the S3 gateway."""
