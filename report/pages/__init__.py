"""Pages, tables and pictures of what was measured or modelled. A page's module has `files()`: {path: text}."""
