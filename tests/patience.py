"""How long tests wait for what they have started."""

PATIENCE_S = 90.0  # less than a test has itself (pyproject.toml), so that it is the test that ends it
