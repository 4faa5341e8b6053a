"""Unchanged pods of an earlier scheduler: they have its scheduler name and limits only, and lack fields that the API server defaults."""

import yaml

from tests.cluster import Cluster

from .conftest import StartApp
from .test_all_or_none import bound, warnings

TOY = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  creationTimestamp: null
spec:
  schedulerName: toyscheduler
  containers:
    - name: main
      image: nvidia/cuda:11.0-base
      command: [sleep, infinity]
      resources:
        limits: {{cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}}
"""


async def test_pods_that_name_the_earlier_toyscheduler_are_placed_by_their_gpu_limits(cluster: Cluster, start_app: StartApp) -> None:
    """The toy scheduler placed pods by limits as well, but never retried a pod that fitted on no node."""
    cluster.add_node("node-1", gpus=2)
    cluster.add_node("node-2", gpus=2)
    await start_app(scheduler_names=("allaboard", "toyscheduler"), strategy="bestfit", strategy_options={"bestfit": {"most_used": True}})
    for number in range(5):
        cluster.create(yaml.safe_load(TOY.format(name=f"test-{number}")))
    await cluster.wait_for(lambda s: len(bound(s)) == 4)
    used = [pod["spec"]["nodeName"] for pod in cluster.list("pods") if pod["spec"].get("nodeName")]
    assert sorted(used) == ["node-1", "node-1", "node-2", "node-2"]
    await cluster.wait_for(lambda s: any("2 Insufficient nvidia.com/gpu" in each for each in warnings(s, "FailedScheduling")))
    cluster.add_node("node-3", gpus=1)
    await cluster.wait_for(lambda s: len(bound(s)) == 5, message="the fifth pod is bound to the new node")
