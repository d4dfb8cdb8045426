"""The core: it records, checks, replays and watches a program, and knows no course."""
