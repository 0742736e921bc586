"""What a job's answer counts in a site's journal: the columns kept, and what parties hear of their columns beside."""

from __future__ import annotations

import math

import pytest

import fedsift as fs
from fedsift.core.job import Job
from fedsift.select.base import subset_bits
from fedsift.site.answer_bits import answer_bits


def bits(selector, columns):
    method, told = selector.announcement()
    return answer_bits(Job(method, told, ("bank", "shop"), "bank"), columns)


@pytest.mark.parametrize(("columns", "most"), [(20, 10), (6, 6), (500, 3)])
def test_the_bits_of_a_subset_are_those_of_how_many_there_are(columns, most):
    assert subset_bits(columns, most) == pytest.approx(math.log2(sum(math.comb(columns, k) for k in range(most + 1))))


def test_a_filter_tells_which_columns_were_kept_and_nothing_beside():
    assert bits(fs.GiniFilter(n_features=3), 20) == pytest.approx(subset_bits(20, 3))
    assert bits(fs.SFFS(n_features=3), 20) == pytest.approx(subset_bits(20, 3))


@pytest.mark.parametrize(("screen", "parts"), [(10, 100), ("coarse", 1000)])
def test_which_groups_or_columns_go_on_is_counted_beside_the_answer(screen, parts):
    """40 rows, 120 groups, half of them on: 0.900 of the labels, by the kept flags 0.750 (test_audit_all_twins)."""
    selector = fs.SFFS(n_features=3, screen=screen, screen_share=0.05)
    assert bits(selector, 1000) == pytest.approx(subset_bits(1000, 3) + subset_bits(parts, math.ceil(0.05 * parts)))


def test_preselected_columns_and_the_order_of_choices_are_counted():
    both, none = (bits(fs.Muse(n_features=4, preselect=told), 30) for told in (True, False))
    assert none == pytest.approx(subset_bits(30, 4))
    assert both == pytest.approx(2 * subset_bits(30, 4) + math.log2(math.factorial(4)))


def test_what_passed_the_screen_of_less_vfl_is_counted_unless_it_is_the_answer():
    assert bits(fs.LessVFL(), 30) == pytest.approx(30 * math.log2(3))
    assert bits(fs.LessVFL(match=1.0), 30) == pytest.approx(30)
