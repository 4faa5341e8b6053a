"""Mutants that repeat a request, or act after a long time, without the facts on which it was decided."""

from .mutant import Edit, Mutant

_SENT = '{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": '
_PRECONDITIONS = '            preconditions = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}\n'

MUTANTS = (
    Mutant(
        "a release that met a conflict is repeated without a version",
        "released_again",
        "precondition",
        (
            Edit(
                "Binder.release",
                "preconditions = {'uid': pod.uid, 'resourceVersion': current['metadata']['resourceVersion']}",
                """
    preconditions = {'uid': pod.uid, 'resourceVersion': current['metadata']['resourceVersion']}
    preconditions = {'uid': pod.uid} if tries else preconditions
""",
            ),
        ),
    ),
    Mutant(
        "a release that met an error is repeated without a version",
        "released_again",
        "precondition",
        (
            Edit(
                "Binder._delete",
                "await self._server.delete(_path(pod), {'apiVersion': 'v1', 'kind': 'DeleteOptions', 'preconditions': preconditions})",
                """
    body = {'apiVersion': 'v1', 'kind': 'DeleteOptions', 'preconditions': dict(preconditions)}
    preconditions.pop('resourceVersion', None)
    await self._server.delete(_path(pod), body)
""",
            ),
        ),
    ),
    Mutant(
        "a member that started while its release was in flight is released",
        "started_while_it_was_released",
        "release",
        (Edit("Binder.release", "not even_running", "not (even_running or tries)"),),
    ),
    Mutant(
        "a bind that met a conflict is repeated without a version",
        "bound_again",
        "precondition",
        (Edit("Binder._after_conflict", "str(current['metadata']['resourceVersion'])", "''"),),
    ),
    Mutant(
        "a Job is suspended and resumed without a version",
        "suspended",
        "precondition",
        (Edit("JobRestarter._patch", "{'resourceVersion': job.version, 'labels': labels}", "{'labels': labels}"),),
    ),
    Mutant(
        "a Job that has been given to another controller is resumed",
        "taken_over_by_a_queue",
        "stranger",
        (Edit("JobRestarter._resume", "job.is_suspended and (not job.manager)", "job.is_suspended"),),
    ),
    Mutant(
        "the plan of a long search is carried out on stale state",
        "placed_while_watches_are_broken",
        "stale",
        (Edit("LongerSearches._run", "await until_fresh(self.is_fresh)", ""),),
    ),
    Mutant(
        "partially bound gangs are released on the stale state of a long search",
        "released_while_watches_are_broken",
        "stale",
        (Edit("LongerSearches._release_victims", "await until_fresh(self.is_fresh)", ""),),
    ),
)
