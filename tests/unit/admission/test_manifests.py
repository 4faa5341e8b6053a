"""Tests that the shipped webhook configurations agree with the code."""

import re
from pathlib import Path
from typing import Any

import orjson
import yaml

from allaboard.admission.certificate_secret import NAME
from allaboard.admission.review import FUNCTION_LABEL, Rules, answer
from allaboard.admission.server import PATH
from allaboard.admission.templates import PATHS
from allaboard.cli.bundled import examples
from allaboard.gangs.membership import GANG_LABELS

FOLDER = Path(__file__).parents[3] / "config" / "components" / "admission"


def webhook(file: str) -> dict[str, Any]:
    configuration = yaml.safe_load((FOLDER / file).read_text())
    assert configuration["metadata"]["name"] == NAME
    (found,) = configuration["webhooks"]
    assert isinstance(found, dict)
    return found


def test_manifests_ignore_failing_webhooks_and_have_no_ca_bundle_that_an_upgrade_would_overwrite() -> None:
    for found in (webhook("mutating-webhook.yaml"), webhook("validating-webhook.yaml")):
        assert (found["failurePolicy"], found["timeoutSeconds"], found["sideEffects"]) == ("Ignore", 1, "None")
        assert found["clientConfig"] == {"service": {"namespace": "allaboard-system", "name": NAME, "path": PATH}}
        selector = found["namespaceSelector"]
        assert selector["matchLabels"] == {"allaboard.dev/schedule": "true"}
        (excluded,) = selector["matchExpressions"]
        assert (excluded["key"], excluded["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert {"kube-system", "allaboard-system"} <= set(excluded["values"])


def test_mutating_webhook_matches_pods_with_each_label_that_makes_a_pod_ours() -> None:
    (condition,) = webhook("mutating-webhook.yaml")["matchConditions"]
    asked = re.findall(r"'([^']+)'", condition["expression"])
    assert set(asked) == {*GANG_LABELS, FUNCTION_LABEL, "allaboard.dev/"}


def test_webhooks_allow_every_example() -> None:
    found = [raw for path in examples() for raw in yaml.safe_load_all(path.read_text()) if raw]
    for raw in found:
        group = raw["apiVersion"].rpartition("/")[0]
        request = {"uid": "1", "operation": "CREATE", "namespace": "default", "kind": {"group": group, "kind": raw["kind"]}, "object": raw}
        assert answer(orjson.dumps({"request": request}), Rules(("allaboard",)))["response"] == {"uid": "1", "allowed": True}


def test_validating_webhook_matches_each_kind_whose_templates_are_known() -> None:
    asked = {
        (group, plural)
        for rule in webhook("validating-webhook.yaml")["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert asked == {(group, f"{kind.lower()}s") for group, kind in PATHS}
