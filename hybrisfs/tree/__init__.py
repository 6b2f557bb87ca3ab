"""The inode-based core: names, attributes and content. It knows no FUSE and no network."""
