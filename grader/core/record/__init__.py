"""The recorder: it runs beside the submission and writes down its program. Nothing that it sends is believed."""
