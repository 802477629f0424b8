"""Studies: many runs from one file. The language (schema, load, expand, names), and the runner that works through them."""
