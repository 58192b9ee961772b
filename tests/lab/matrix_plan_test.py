#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plan of the matrix: each pair of two dimensions' values that can meet does so, and a cover is small."""

import itertools
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import matrix_plan  # noqa: E402
from pairwise import cover, pairs_of  # noqa: E402


class Cover(unittest.TestCase):
    def test_every_pair_of_a_full_matrix_meets(self):
        cells = list(itertools.product("abc", range(4), "xy", "pqrst"))
        few = cover(cells)
        self.assertEqual({p for c in few for p in pairs_of(c)}, {p for c in cells for p in pairs_of(c)})
        self.assertLessEqual(len(few), 26)  # 4 × 5 is the least that can be

    def test_only_cells_that_are_there(self):
        cells = [c for c in itertools.product("ab", "cd", "ef") if c != ("a", "c", "e")]
        self.assertLessEqual(set(cover(cells)), set(cells))


class Plan(unittest.TestCase):
    def setUp(self):
        self.every, self.without = matrix_plan.chosen(full=True)
        self.few, _ = matrix_plan.chosen()

    def test_pairs(self):
        possible = {p for c in self.every for p in pairs_of(c)}
        self.assertEqual({p for c in self.few for p in pairs_of(c)}, possible)

    def test_every_cell_is_run_or_left_out_for_a_reason(self):
        product = 1
        for values in (matrix_plan.KERNELS, matrix_plan.FILE_SYSTEMS, matrix_plan.STACKS, matrix_plan.WAYS, matrix_plan.STATES,
                       matrix_plan.TIERS):
            product *= len(values)
        self.assertEqual(len(self.every) + sum(self.without.values()), product)

    def test_a_stack_costs_each_kernel_one_session_or_two(self):
        self.assertLessEqual(len(matrix_plan.by_session(self.few)), len(matrix_plan.KERNELS) * len(matrix_plan.STACKS) + 6)


if __name__ == "__main__":
    unittest.main()
