"""What runs inside every sandbox: the fork server, and what recorder and runner share."""
