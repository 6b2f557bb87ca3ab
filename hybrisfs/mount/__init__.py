"""The FUSE face of a volume: requests of the kernel become calls of the filesystem."""
