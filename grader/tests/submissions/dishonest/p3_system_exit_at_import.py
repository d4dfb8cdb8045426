"""SystemExit while the module is loaded."""

raise SystemExit(0)
