"""What only the makers of torchcaps run: exporting weights, calibrating turntable, tables for the docs."""
