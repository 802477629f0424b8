"""Apps of Flower on handwritten digits: one client, and servers of several kinds."""
