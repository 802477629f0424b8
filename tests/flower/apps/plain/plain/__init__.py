"""An app that only passes arrays around, and can go wrong in every way: ``what`` says how."""
