"""Formulas as MathML, made when the site is built: a browser shows them without a script or a font of ours."""

from html import unescape
from xml.etree import ElementTree

LIMITS = {"max", "min", "sup", "inf", "lim"}  # in a formula on a line of its own, what they range over stands below
PRIME = "\N{PRIME}"


def mathml(formula, display="inline"):
    """A LaTeX formula as a <math> element, in text; display: "inline" or "block"."""
    from latex2mathml.converter import convert_to_element  # not where the quick tests run

    element = convert_to_element(formula, display=display)
    for part in element.iter():
        part.text = unescape(part.text or "")  # the converter writes signs as entities
    for part in element.iter():
        if display == "block" and part.tag == "msub" and part[0].text in LIMITS:
            part.tag = "munder"
        if part.tag == "msup" and part[1].text == PRIME:  # as a small raised sign of most fonts it is a mere dot
            part.tag, part[1].tag, part[1].attrib = "mrow", "mo", {"class": "prime", "lspace": "0", "rspace": "0"}
    return ElementTree.tostring(element, encoding="unicode")


def inline(translator, node):
    from docutils.nodes import SkipNode

    translator.body.append(mathml(node.astext()))
    raise SkipNode


def block(translator, node):
    from docutils.nodes import SkipNode

    translator.body.append(mathml(node.astext(), "block"))
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
