"""All cases of `python -m bench`. `catalog` lists them; `copies` and `replicated` make parts of the list."""
