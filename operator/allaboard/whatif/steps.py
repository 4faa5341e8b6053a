"""Expands a pipeline of a manifest into the Deployments of all its stages, as if every stage were due."""

from collections.abc import Iterator
from dataclasses import replace

from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import mapping
from allaboard.pipelines.objects import DEPLOYMENTS, object_of
from allaboard.pipelines.stages import Policy, pipeline_from
from allaboard.whatif.documents import Document

PIPELINE = ("kopf.dev", "MLFlow")


def unfolded(document: Document, namespace: str) -> Iterator[Document]:
    """Yield the Deployments of a pipeline; yield any other document unchanged. Raises ``ManifestError``."""
    if (document.group, document.kind) != PIPELINE:
        yield document
        return
    try:
        metadata = mapping(document.raw, "metadata")
        home, name = metadata.get("namespace") or namespace, metadata.get("name")
        # The Deployments have the UID in a label, so it must be shorter than other made-up UIDs, without slash and colon.
        uid = metadata.get("uid") or f"manifest.{home}.{name}"[:63].rstrip("-.")
        pipeline = pipeline_from({**document.raw, "metadata": {**metadata, "namespace": home, "uid": uid}})
    except MalformedError as error:
        raise document.origin.blame(error) from error
    for problem in filter(None, (pipeline.problem, *(stage.problem for stage in pipeline.stages))):
        where, _, words = problem.partition(": ")
        raise document.origin.error(where, words)
    for stage in pipeline.stages:
        for step in stage.steps:
            made = object_of(pipeline, stage, step, DEPLOYMENTS, Policy())
            yield replace(document, raw=made, kind=made["kind"], api_version=made["apiVersion"])
