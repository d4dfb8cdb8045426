"""The harness of all studies: a study's points and rows, its command, and the process in which arms take turns."""
