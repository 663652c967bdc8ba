"""Draw charts as SVG text.

No dependency, no network, readable in light and dark and without colour.
"""
