"""The folder that a training run leaves: its files, rows of metrics, and the machine that it ran on."""
