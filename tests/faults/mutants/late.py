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
                "binding/bind.py",
                _PRECONDITIONS,
                f'{_PRECONDITIONS}            preconditions = {{"uid": pod.uid}} if tries else preconditions\n',
            ),
        ),
    ),
    Mutant(
        "a release that met an error is sent again without its version",
        "released_again",
        "precondition",
        (
            Edit(
                "binding/bind.py",
                f"        await self._server.delete(_path(pod), {_SENT}preconditions}})\n",
                (
                    f"        body = {_SENT}dict(preconditions)}}\n"
                    '        preconditions.pop("resourceVersion", None)\n        await self._server.delete(_path(pod), body)\n'
                ),
            ),
        ),
    ),
    Mutant(
        "a member that has started while its release was on its way isn't spared",
        "started_while_it_was_released",
        "release",
        (
            Edit(
                "binding/bind.py", "            if not even_running and (current", "            if not (even_running or tries) and (current"
            ),
        ),
    ),
    Mutant(
        "a bind that met a conflict is made again without a version",
        "bound_again",
        "precondition",
        (Edit("binding/bind.py", '        bind.renew(str(current["metadata"]["resourceVersion"]))\n', '        bind.renew("")\n'),),
    ),
    Mutant(
        "a Job is suspended and resumed whatever has become of it",
        "suspended",
        "precondition",
        (
            Edit(
                "binding/job_suspension.py",
                '            metadata = {"resourceVersion": job.version, "labels": labels}\n',
                '            metadata = {"labels": labels}\n',
            ),
        ),
    ),
    Mutant(
        "a Job that has been given to another controller is resumed",
        "taken_over_by_a_queue",
        "stranger",
        (Edit("binding/job_suspension.py", "if job.is_suspended and not job.manager else {}", "if job.is_suspended else {}"),),
    ),
    Mutant(
        "the plan of a long search is carried out on stale facts",
        "found_while_deaf",
        "stale",
        (
            Edit(
                "scheduling/act.py",
                "            self.start_long_search()\n        await until_fresh(self.is_fresh)\n",
                "            self.start_long_search()\n",
            ),
        ),
    ),
    Mutant(
        "half gangs make way for a long search by stale facts",
        "asked_while_deaf",
        "stale",
        (
            Edit(
                "scheduling/act.py",
                "            await until_fresh(self.is_fresh)\n            await self._make_way(gang)\n",
                "            await self._make_way(gang)\n",
            ),
        ),
    ),
)
