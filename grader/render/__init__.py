"""Faces of the one result model; none of them decides anything."""
