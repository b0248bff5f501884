"""A result to look at: one self-contained page, a figure, tables for notebooks."""

from interpress.report.content import content_of
from interpress.report.figure import figure_of
from interpress.report.page import html_tables, report_page

__all__ = ["content_of", "figure_of", "html_tables", "report_page"]
