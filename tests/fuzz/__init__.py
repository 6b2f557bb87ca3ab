"""Fuzz targets: one for every decoder of bytes that come from clouds, members, the network or other programs.

`targets.TARGETS` is the table: name -> `target.Target`, which has valid records to begin with, made by the
code itself, and asserts that nothing but the documented errors is raised, and that a record which has but one
form encodes to itself.

    pytest tests/fuzz                         some hundred mutations of each, the same each time; in seconds
    python -m tests.fuzz all --runs 100000    the long run; of one target: its name instead of `all`
    python -m tests.fuzz --list               their names

The long run is guided by coverage if Atheris is there (`pip install -e '.[fuzz]'`), else it mutates blindly.
What it finds is written to a file that it names; `python -m tests.fuzz NAME --file FILE` tries that again.
A new decoder gets a target in the file of its kind, and whatever is found becomes a seed of its target.
"""
