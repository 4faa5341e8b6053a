"""Mutants that count pods of one run for another, or wait for pods that no controller will create."""

from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "all pods with a gang's name are one run",
        "submitted_again",
        "quorum",
        (Edit("_Census.root", "job.root if job else pod.owner.uid", "job.root if job and (not job) else source.name"),),
    ),
    Mutant(
        "the last member of a wave counts for the next wave",
        "wave_beside_a_straggler",
        "quorum",
        (Edit("_Census._assign", "is_first or pod.created < run.began", "True"),),
    ),
    Mutant(
        "bare pods that are enough for a run join the earlier run",
        "bare_run_beside_a_straggler",
        "quorum",
        (Edit("_Census._assign", "is_first or pod.created < run.began", "True"),),
    ),
    Mutant(
        "the two Jobs of a gang are two runs",
        "two_controllers",
        "idle",
        (
            Edit(
                "_Census.controller_sets",
                "new and (new[-1].size < self.minimum or controllers.templates.isdisjoint(new[-1].templates))",
                "False",
            ),
        ),
    ),
    Mutant(
        "the scheduler waits for pods that no Job will create",
        "last_wave_is_smaller",
        "idle",
        (Edit("_Census.run", "max(0, gone.total() - max(0, spare))", "0"),),
    ),
    Mutant(
        "a run that was whole waits for replacements of all lost members",
        "lost_after_scaling_down",
        "unresolved",
        (Edit("SETTLE_SECONDS", "5.0", "5000.0"),),
    ),
    Mutant(
        "running members hold a replacement of another priority",
        "replaced_at_another_priority",
        "unresolved",
        (Edit("GangRegistry._hold", "() if is_rollout(waiting) else waiting", "alive"),),
    ),
    Mutant(
        "the old pods of a rollout state the minimum",
        "rolled_out",
        "unresolved",
        (Edit("deciding_members", "waiting or [max(alive, key=by_age)] if alive else ()", "alive"),),
    ),
)
