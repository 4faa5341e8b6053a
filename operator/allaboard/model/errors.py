"""What can be wrong with an object somebody else wrote."""


class MalformedError(ValueError):
    """A field of an object can't be understood.

    ``field`` is a JSON path inside the object (``spec.containers[0].resources.requests[cpu]``), ``problem`` says what is wrong
    with it and what would be right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
