"""Groups of clients: how they are formed, how good they are, which of them train and count. Pure numpy."""
