"""Tests of what is served by WebDAV."""
