"""How sure a ranking of methods is: reads the folder of a certificate, many worlds in which finished runs were replayed.

`certificate` reads the folder, `measured` knows what is measured, `worldwise` sets two methods side by side in every world,
`probability` says how sure a share of worlds is, `deciding` which unknown matters, `regions` who is best where, `verdict` puts it
into a sentence, and `tables` and `summary` print it. The formulas and their sources are in ``docs/certainty.md``.
"""
