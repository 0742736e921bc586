"""What people look at: a plain record of a run, and its renderings as HTML and text."""

from fedsift.report.compare import Comparison, compare
from fedsift.report.html import render_html
from fedsift.report.notebook import notebook_html
from fedsift.report.pictures import PICTURES, picture
from fedsift.report.record import Report
from fedsift.report.summary import summarize
from fedsift.report.text import render_text
from fedsift.report.write import write_report

__all__ = [
    "PICTURES",
    "Comparison",
    "Report",
    "compare",
    "notebook_html",
    "picture",
    "render_html",
    "render_text",
    "summarize",
    "write_report",
]
