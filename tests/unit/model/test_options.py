"""Labels that have the name of an option are errors."""

import pytest

from allaboard.model.options import KNOWN, options_in


@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("annotations", [{}, {"allaboard.dev/objective": "spread"}])
def test_an_option_that_is_stated_as_a_label_is_an_error(name: str, annotations: dict[str, str]) -> None:
    options, problem = options_in({"labels": {f"allaboard.dev/{name}": "2", "app": "a"}, "annotations": annotations})
    assert options == tuple((key.removeprefix("allaboard.dev/"), value) for key, value in annotations.items())
    assert str(problem) == f"metadata.labels[allaboard.dev/{name}]: is read as an annotation only: write it there"


@pytest.mark.parametrize("labels", [{}, {"allaboard.dev/schedule": "true"}, {"genius/gpu-number": "2"}, {"app": "gpu-number"}])
def test_labels_that_name_no_option_are_ignored(labels: dict[str, str]) -> None:
    assert options_in({"labels": labels}) == ((), None)
