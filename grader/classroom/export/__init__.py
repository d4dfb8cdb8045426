"""A graded class in the forms that others read: each module one form, none of them decides anything."""
