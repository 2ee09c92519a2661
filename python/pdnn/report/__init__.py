"""Reports on sweeps: tables and pictures of what was measured, and a page that holds both."""

from pdnn.report.page import page, write
from pdnn.report.pictures import pictures
from pdnn.report.summary import Line, Workload, summary

__all__ = ["Line", "Workload", "page", "pictures", "summary", "write"]
