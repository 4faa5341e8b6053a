"""An in-process Kubernetes API with fake kubelets, for the demo, the tests and a first try with kubectl.

Where it differs from a real cluster, the sandbox is wrong: the integration tests run on both.
"""

from allaboard_sandbox.errors import ApiError
from allaboard_sandbox.faults import Fault, Hold
from allaboard_sandbox.sandbox import NodeShape, Sandbox, node_object

__all__ = ["ApiError", "Fault", "Hold", "NodeShape", "Sandbox", "node_object"]
