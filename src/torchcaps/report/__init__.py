"""The page that a training run ends with; and tables for the docs, made by commands."""

from torchcaps.report.page import write_report

__all__ = ["write_report"]
