"""The search for a placement of a whole gang. Pure: same input, same plan."""

from allaboard.placement.filters import NodeFilters
from allaboard.placement.genetic import SearchSettings
from allaboard.placement.greedy import greedy_seeds
from allaboard.placement.plan import Explanation, Plan, RoleExplanation, SearchReport, Shortage
from allaboard.placement.problem import Problem, build_problem
from allaboard.placement.search import search
from allaboard.placement.verify import Violation, Wrong, verify

__all__ = [
    "Explanation",
    "NodeFilters",
    "Plan",
    "Problem",
    "RoleExplanation",
    "SearchReport",
    "SearchSettings",
    "Shortage",
    "Violation",
    "Wrong",
    "build_problem",
    "greedy_seeds",
    "search",
    "verify",
]
