"""Pictures of runs, one plot a file. What they have in common is in `analysis.plots.style`."""
