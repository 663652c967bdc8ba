"""Draw charts as SVG text: no dependency, no network,
readable in light and dark and without colour.
"""
