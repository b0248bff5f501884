"""Channel spaces: which channels of a program can be removed together, and what that saves.

`from_program.spaces_of` finds the spaces of a captured program. It follows labels through the
operators (`follow`), merges labels into channels (`classes`), finds the taps (`tap_finder`), and
groups channels into spaces (`grouping`).
"""
