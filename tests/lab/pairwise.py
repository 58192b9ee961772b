# SPDX-License-Identifier: Apache-2.0
"""A pairwise cover: few cells of a matrix, in which any two values of two dimensions meet wherever they can."""

import collections
import itertools


def pairs_of(cell):
    """Every pair of (dimension, value) of a cell, which is a tuple of values."""
    return list(itertools.combinations(enumerate(cell), 2))


def cover(cells):
    """A subset of `cells` that has every pair which `cells` have; the same one each time. The rarest missing pair first, since
    it leaves the least choice; of the cells with it the one that shows most new pairs, then the one whose values were shown
    least, so that what is left to choose spreads evenly."""
    having = collections.defaultdict(list)
    for cell in cells:
        for pair in pairs_of(cell):
            having[pair].append(cell)
    missing, shown, chosen = set(having), collections.Counter(), []
    for pair in sorted(having, key=lambda one: len(having[one])):
        if pair not in missing:
            continue
        best = max(having[pair], key=lambda cell: (sum(p in missing for p in pairs_of(cell)),
                                                   -sum(shown[value] for value in enumerate(cell))))
        chosen.append(best)
        missing.difference_update(pairs_of(best))
        shown.update(enumerate(best))
    return chosen
