"""All cases of `python -m bench`: `catalog` lists them, `copies` and `replicated` have their parts."""
