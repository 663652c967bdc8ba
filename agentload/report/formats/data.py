"""Write what each chart shows for other tools.

A table of comma-separated values, and a Vega-Lite specification with its data.
"""

from agentload.report.charts.data import csv, whole
from agentload.report.parts import Document, Files


def files(document: Document) -> Files:
    """Yield two files for every chart."""
    for group in document.groups:
        for chart in group.charts:
            yield f"charts/{chart.name}.csv", csv(chart)
            yield f"charts/{chart.name}.vl.json", whole(chart)
