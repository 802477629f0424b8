"""`hfl explore`: a local page on which a finished run is replayed in other worlds."""
