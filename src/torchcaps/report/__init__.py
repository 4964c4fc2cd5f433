"""Tables for the docs, made by commands."""
