"""The testbed: a scenario for real on one host, by processes that train, sockets that carry models, and links that are shaped."""
