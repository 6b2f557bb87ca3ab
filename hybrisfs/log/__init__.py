"""What the accepted updates leave: for each register its latest values, and the versions before them."""
