"""Run folders: the files of an experiment, and how they are written."""
