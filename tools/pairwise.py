# SPDX-License-Identifier: BSD-2-Clause
"""pairwise.py NAME=VALUE,VALUE... -- combinations of options in which any two
values occur together.

The command prints a run a line, NAME=VALUE with spaces between, of the options
that it is given and of pinion's.

OPTIONS is a dict from the name of an option to its values. A run is a tuple of
values, one of each option, in the order of the dict. `possible` is a function of
a dict from names to values (some of the options) that says whether a run may
have them.
"""
import itertools
import sys


def runs(options, possible=lambda chosen: True):
    """The runs, chosen greedily (AETG's idea): the next one takes an uncovered
    pair of values, then, option by option, the value that covers most."""
    return Combinations(options, possible).runs()


class Combinations:
    def __init__(self, options, possible):
        self.names = list(options)
        self.options = options
        self.possible = possible

    def runs(self):
        left = self.all_pairs()
        made = []
        while left:
            values = dict(min(left))
            for i, name in enumerate(self.names):
                if i not in values:
                    values[i] = max(
                        (v for v in self.options[name]
                         if self.fits(values, i, v)),
                        key=lambda v: self.gain(values, i, v, left))
            run = tuple(values[i] for i in range(len(self.names)))
            left -= set(itertools.combinations(enumerate(run), 2))
            made.append(run)
        return made

    def all_pairs(self):
        return {((i, v), (j, w))
                for i, j in itertools.combinations(range(len(self.names)), 2)
                for v in self.options[self.names[i]]
                for w in self.options[self.names[j]]
                if self.is_possible(((i, v), (j, w)))}

    def is_possible(self, pair):
        return self.possible({self.names[i]: v for i, v in pair})

    def fits(self, values, i, value):
        return all(self.is_possible(((j, w), (i, value)))
                   for j, w in values.items())

    def gain(self, values, i, value, left):
        return sum(tuple(sorted(((j, w), (i, value)))) in left
                   for j, w in values.items())


# What any MPI program must give the same results under. Not the monitor's mode
# none, which promises nothing.
PINION = {
    "PINION_PROTOCOL": ("auto", "copy", "demand", "cached", "pipeline",
                        "caching-pipeline", "read", "overlapped", "eager"),
    "PINION_HELPER": ("off", "own", "auto", "aggressive", "conservative"),
    "PINION_MONITOR": ("auto", "patch", "userfaultfd", "keep", "bypass"),
    "PINION_MAX_BYTES": ("0", "8M", "256K"),
}


def main(words):
    options = {name: tuple(values.split(","))
               for name, values in (word.split("=", 1) for word in words)}
    options.update(PINION)
    for run in runs(options):
        print(*(f"{name}={value}" for name, value in zip(options, run)))


if __name__ == "__main__":
    main(sys.argv[1:])
