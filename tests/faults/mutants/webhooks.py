"""Mutants that skip dry runs although a webhook may refuse binds."""

from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "the dry run is skipped though a webhook matches",
        "webhook_known",
        "dry run",
        (
            Edit(
                "BindAdmission.may_refuse",
                "any(_meets(labels, selectors) for selectors in (*webhooks, *self._applied_policies(labels)))",
                "False",
            ),
        ),
    ),
    Mutant(
        "the dry run is skipped though webhooks can't be read",
        "webhooks_unreadable",
        "dry run",
        (Edit("BindAdmission.may_refuse", "labels is None or not self.is_known()", "labels is None"),),
    ),
)
