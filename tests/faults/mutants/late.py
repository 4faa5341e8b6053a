"""Mutants that forget, when something is sent again or has taken long, what it was decided on."""

from .mutant import Edit, Mutant

_SENT = '{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": '
_PRECONDITIONS = '            preconditions = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}\n'

MUTANTS = (
    Mutant(
        "a release that met a conflict is sent again without its version",
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
        "a release that met an error is sent again without its version",
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
        "a member that has started while its release was on its way isn't spared",
        "started_while_it_was_released",
        "release",
        (Edit("Binder.release", "not even_running", "not (even_running or tries)"),),
    ),
    Mutant(
        "a bind that met a conflict is made again without a version",
        "bound_again",
        "precondition",
        (Edit("Binder._after_conflict", "str(current['metadata']['resourceVersion'])", "''"),),
    ),
    Mutant(
        "a Job is suspended and resumed whatever has become of it",
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
        "the plan of a long search is carried out on stale facts",
        "found_while_deaf",
        "stale",
        (Edit("LongerSearches._run", "await until_fresh(self.is_fresh)", ""),),
    ),
    Mutant(
        "half gangs make way for a long search by stale facts",
        "asked_while_deaf",
        "stale",
        (Edit("LongerSearches._release_victims", "await until_fresh(self.is_fresh)", ""),),
    ),
)
