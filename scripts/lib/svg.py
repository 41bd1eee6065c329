"""What the plots of the docs have in common. White ground, so that dark viewers show them as well."""

from xml.sax.saxutils import escape

INK, FAINT, LINE, DOT, SPREAD = "#222222", "#d8d8d8", "#c2410c", "#1d4ed8", "#93b4f5"


def number(value):
    """Digits in groups of three, without needless noughts."""
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def text(x, y, words, size=10, anchor="middle", extra=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {extra}>'
        f"{escape(words)}</text>"
    )


def line(start, end, color, extra=""):
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{extra}/>'


def document(width, height, title, parts):
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])
