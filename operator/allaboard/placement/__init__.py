"""Search for a placement of a whole gang.

A search has no side effects. The same input gives the same plan, unless the search reaches its time limit.
"""

from allaboard.placement.problem.build import build_problem
from allaboard.placement.problem.plan import Explanation, Plan, RoleExplanation, SearchReport, Shortage, Step
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.verify import Violation, Wrong, verify
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.genetic import SearchSettings
from allaboard.placement.solvers.greedy import greedy_seeds
from allaboard.placement.solvers.search import search, search_quickly
from allaboard.placement.strategies.strategy import Strategy, answer_of

__all__ = [
    "Budget",
    "Explanation",
    "NodeFilters",
    "Plan",
    "Problem",
    "RoleExplanation",
    "SearchReport",
    "SearchSettings",
    "Shortage",
    "Step",
    "Strategy",
    "Violation",
    "Wrong",
    "answer_of",
    "build_problem",
    "greedy_seeds",
    "search",
    "search_quickly",
    "verify",
]
