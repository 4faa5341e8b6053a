"""A Kubernetes API server in this process, with fake kubelets, for the demo, the tests and a first try with kubectl.

The integration tests run against the sandbox and against a real API server. Where the two differ, the sandbox is wrong.
"""

from allaboard_sandbox.errors import ApiError
from allaboard_sandbox.faults import Fault, Hold
from allaboard_sandbox.sandbox import NodeShape, Sandbox, node_object
from allaboard_sandbox.storage import NO_PROVISIONER, local_volume, waiting_class

__all__ = ["NO_PROVISIONER", "ApiError", "Fault", "Hold", "NodeShape", "Sandbox", "local_volume", "node_object", "waiting_class"]
