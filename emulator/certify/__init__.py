"""How sure a comparison is: finished runs in many worlds that are drawn from what is uncertain."""
