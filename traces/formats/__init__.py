"""Formats of trace files, one a file. Each registers a function ``(path, params)`` that returns a `traces.content.Content`.

What a format declares about itself: ``gives``, the type that it returns; ``fits``, a function that tells from a `Head` whether a
file is in this format.
"""
