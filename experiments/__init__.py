"""``python -m experiments``: the paper's tables and figures, run again; what came out, beside what the paper says."""
