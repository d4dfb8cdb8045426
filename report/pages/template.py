"""Pages as Jinja templates in `report/templates/`: prose there, numbers and tables from code."""

import jinja2

from report.places import REPORT, Refused

TEMPLATES = REPORT / "templates"


class BadTemplate(Refused):
    """A template that is not there, is no Jinja or asks for what is not there; the text is one sentence."""


def render(page, **values):
    """The text of `page`, like STEPS.md; raises BadTemplate."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    name = f"report/{TEMPLATES.name}/{page}.jinja"
    try:
        return environment.get_template(f"{page}.jinja").render(values)
    except jinja2.TemplateNotFound:
        raise BadTemplate(f"{name} is not there, and it holds the page's text") from None
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(f"line {error.lineno} of {name} is no Jinja: {error.message}") from None
    except jinja2.UndefinedError as error:
        raise BadTemplate(f"{name} asks for what is not there: {error.message}") from None
