"""The page that a training run ends with."""

from torchcaps.report.page import write_report

__all__ = ["write_report"]
