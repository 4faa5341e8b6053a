"""A webhook that matches binds and is never called."""

from typing import Any

BIND_WEBHOOK: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "sees-binds"},
    "webhooks": [
        {
            "name": "binds.example.com",
            "clientConfig": {"url": "https://127.0.0.1:9/"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}],
            "matchConditions": [{"name": "never", "expression": "false"}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}
"""A webhook whose rules match binds, so that binds are dry-run first. Its condition never holds: the API server never calls it."""
