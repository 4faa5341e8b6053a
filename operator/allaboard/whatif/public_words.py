"""Lists the words that an anonymous snapshot keeps: those that Kubernetes, Allaboard and other schedulers define, and no user."""

import re

from allaboard.cluster.namespaces import NAME_LABEL
from allaboard.cluster.storage_objects import SELECTED_NODE
from allaboard.gangs.membership import (
    GANG_LABELS,
    GANG_NAME_LABEL,
    MIN_AVAILABLE_LABEL,
    OLDER_POD_GROUP_LABEL,
    PAIR_PREFIXES,
    POD_GROUP_LABEL,
)
from allaboard.gangs.podgroup import INITIALLY_SCHEDULED
from allaboard.leadership.label import LEADS
from allaboard.model.disruption import DISRUPTION_TARGET, PREEMPTED
from allaboard.model.foreign_gang_labels import FOREIGN_GANG_LABELS
from allaboard.model.gang import Objective, OnMemberLost, Undo
from allaboard.model.gpu_inventory import WHOLE_GPUS
from allaboard.model.gpu_request import GPU_OPTIONS, LABEL_PREFIX, NAMESPACE_PRIORITY_LABEL
from allaboard.model.gpu_sharing import DRIVERS
from allaboard.model.gpushares import DEVICE_RESOURCES, FRACTION, MEMORY, NUMBER
from allaboard.model.kueue import GROUP_NAME, GROUP_TOTAL, MANAGED, TOPOLOGY
from allaboard.model.node import HOSTNAME
from allaboard.model.openfaas import FUNCTION_SPEC
from allaboard.model.options import KNOWN, OPTION_PREFIX, OURS
from allaboard.model.pod import ROLE_LABELS
from allaboard.model.provisioning import CONSUMES, MADE_FOR, MANAGED_BY, PROVISIONING_CLASS
from allaboard.model.reasons import Code
from allaboard.model.topologies import LEVELS
from allaboard.plugins import SHIPPED_STRATEGIES
from allaboard.whatif.collected import KINDS

PRODUCTS = frozenset(
    (
        *("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "gpu.intel.com/product"),
        *("gpu.intel.com/family", f"{LABEL_PREFIX}gpu-model", f"{OPTION_PREFIX}gpu-model"),
    )
)
"""Labels and annotations with the product names of GPUs, or with expressions that match them."""

GANG_NAMES = frozenset({POD_GROUP_LABEL, OLDER_POD_GROUP_LABEL, *(f"{prefix}/name" for prefix in PAIR_PREFIXES), GROUP_NAME})
"""Labels and annotations whose value is the name of a gang."""

ZONES = frozenset(
    f"{domain}/{part}" for domain in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io") for part in ("zone", "region")
)
"""Labels whose value may be several names, with ``__`` in between."""

HANDSHAKES = frozenset(driver.handshake for driver in DRIVERS.values())
"""Annotations in which only the word ``Deleted`` at the beginning counts."""

NAMED_BY = frozenset(
    (
        *(
            HOSTNAME,
            NAME_LABEL,
            SELECTED_NODE,
            CONSUMES,
            "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
            PROVISIONING_CLASS,
        ),
        *(MADE_FOR, "metadata.name", "volume.beta.kubernetes.io/storage-class", "statefulset.kubernetes.io/pod-name"),
        *("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid", "job-name", "controller-uid", "pod-group-name"),
        *("training.kubeflow.org/job-name", "volcano.sh/job-name", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "runai/queue"),
        *("scheduling.volcano.sh/queue-name", "scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name"),
        *(driver.node for driver in DRIVERS.values()),
    )
)
"""Labels, annotations and fields whose value is one name, even if the name looks like a number."""

RESOURCES = frozenset(
    (
        *("cpu", "memory", "ephemeral-storage", "storage", "pods", "count", "aliyun.com/gpu-mem"),
        *("persistentvolumeclaims", "services", "services.loadbalancers", "services.nodeports", "configmaps", "secrets"),
        *("replicationcontrollers", "resourcequotas", "count/pods", "count/jobs.batch", "count/deployments.apps"),
        *WHOLE_GPUS,
        *DEVICE_RESOURCES,
        *(resource for driver in DRIVERS.values() for resource in (driver.count, *driver.part_resources)),
    )
)
"""Names of resources, as nodes offer them and quotas count them."""

RESOURCE = re.compile(r"hugepages-[0-9]+[KMG]i|nvidia\.com/mig-[0-9]g\.[0-9]{1,3}gb(\.shared)?")
"""A pattern for the other names of resources that are kept."""

KEYS = frozenset(
    (
        *GANG_LABELS,
        *GANG_NAMES,
        *ROLE_LABELS,
        *ZONES,
        *PRODUCTS,
        *NAMED_BY,
        *HANDSHAKES,
        *RESOURCES,
        *FOREIGN_GANG_LABELS,
        *MANAGED,
        *TOPOLOGY,
        *(label for labels in LEVELS.values() for label in labels),
        *(OPTION_PREFIX + option for option in (*KNOWN, *OURS)),
        *(LABEL_PREFIX + option for option in GPU_OPTIONS),
        *(name for driver in DRIVERS.values() for name in (driver.register, driver.holds, *driver.lists, *driver.times, driver.phase)),
        *(GANG_NAME_LABEL, MIN_AVAILABLE_LABEL, GROUP_TOTAL, NAMESPACE_PRIORITY_LABEL, FRACTION, MEMORY, NUMBER, FUNCTION_SPEC),
        *(LEADS, MANAGED_BY, "app.kubernetes.io/name", "app.kubernetes.io/component", "app.kubernetes.io/part-of"),
        *("kueue.x-k8s.io/pod-group-fast-admission", "kueue.x-k8s.io/podset-unconstrained-topology"),
        *("kueue.x-k8s.io/max-exec-time-seconds", "slurmjob.slinky.slurm.net/timelimit", "gang.scheduling.koordinator.sh/timeout"),
        *("nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas", "nvidia.com/gpu.present"),
        *("gpu.intel.com/device.count", "gpu.intel.com/cards", "gpu.intel.com/memory.max", "amd.com/gpu.vram", "beta.amd.com/gpu.vram"),
        *("jobset.sigs.k8s.io/job-global-index", "leaderworkerset.sigs.k8s.io/group-index", "batch.kubernetes.io/job-completion-index"),
        *("training.kubeflow.org/replica-index", "apps.kubernetes.io/pod-index", "leaderworkerset.sigs.k8s.io/worker-index"),
        *("training.kubeflow.org/operator-name", "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"),
        *("storageclass.kubernetes.io/is-default-class", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"),
        *("node-role.kubernetes.io/control-plane", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
        *("node.kubernetes.io/unschedulable", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure"),
        *("node.kubernetes.io/pid-pressure", "node.kubernetes.io/network-unavailable"),
    )
)
"""Keys of labels, annotations and taints that Allaboard reads or that every cluster has."""

KEY_BEGINNINGS = (
    *(
        OPTION_PREFIX,
        f"{LABEL_PREFIX}gpu",
        LABEL_PREFIX,
        "gang.scheduling.koordinator.sh/",
        "pod-group.scheduling.sigs.k8s.io/",
        "scheduling.volcano.sh/",
    ),
    *("volcano.sh/network-topology", "volcano.sh/task-topology", "kai.scheduler/topology", "kai.scheduler/segment-"),
    *("yunikorn.apache.org/task-group", "kueue.x-k8s.io/podset-", "kueue.x-k8s.io/", "node.kubernetes.io/"),
)
"""Beginnings of keys that mean something to Allaboard whatever follows; longer ones come first. What follows is replaced."""

WORDS = frozenset(
    (
        "",
        *(each for kind in KINDS for each in (kind.api_version, kind.kind)),
        *("v1", "List", "apps/v1", "ReplicaSet", "StatefulSet", "DaemonSet", "Deployment", "ReplicationController", "CronJob", "JobSet"),
        *("jobset.x-k8s.io/v1alpha2", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "RayService", "trainer.kubeflow.org/v1alpha1"),
        *("TrainJob", "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2", "Workload"),
        *("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "NoSchedule", "PreferNoSchedule", "NoExecute"),
        *("Always", "OnFailure", "Never", "PreemptLowerPriority", "TCP", "UDP", "SCTP", "0.0.0.0"),  # noqa: S104  # any address of a port
        *("DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "Count", "FailJob", "FailIndex", "Indexed", "NonIndexed"),
        *("Pending", "Running", "Succeeded", "Failed", "Unknown", "Active", "Terminating", "Bound", "Available", "Released"),
        *("WaitForFirstConsumer", "Immediate", "Filesystem", "Block", "kubernetes.io/no-provisioner", "Container", "Pod"),
        *("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
        *("ebs.csi.aws.com", "disk.csi.azure.com", "cinder.csi.openstack.org", "pd.csi.storage.gke.io", "pxd.portworx.com"),
        *("csi.vsphere.vmware.com", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass"),
        *("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "PodScheduled", "Unschedulable"),
        *(DISRUPTION_TARGET, PREEMPTED, INITIALLY_SCHEDULED, "SchedulingGated", "PodResizePending", "Infeasible", "Deferred"),
        *Code,
        *("allaboard", "default-scheduler", "default", "kube-system", "kube-public", "kube-node-lease"),
        *("system-node-critical", "system-cluster-critical"),
        *("true", "false", "True", "False", "amd64", "arm64", "linux", "windows", "hami-core", "mig", "success", "allocating"),
        *("worker", "launcher", "master", "chief", "ps", "evaluator", "head", "leader"),
        *("required", "preferred", "segment", *LEVELS, *Objective, *OnMemberLost, *Undo, *SHIPPED_STRATEGIES),
        *("Strict", "NonStrict", "mpi-operator", "training-operator"),
    )
)
"""Values and names that are kept wherever they stand."""

GPU_WORD = re.compile(
    r"\\[a-z]|.{1,2}|[a-z]{1,2}[0-9]{1,4}[a-z]{0,2}|[0-9]{1,4}(gb)?|sxm[0-9]?|pcie|nvl|hbm[0-9]?e?"
    r"|nvidia|amd|intel|habana|tesla|geforce|quadro|instinct|radeon|gaudi[0-9]?|max|flex|data|center|gpu|super|shared|rtx|gtx|titan|pro",
    re.IGNORECASE,
)
"""The words of which product names of GPUs consist, as far as vendors use them."""

AMOUNT = re.compile(
    r"[-+]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][-+]?[0-9]{1,3}|[numkMGTPE]i?)?"  # a quantity
    r"|([0-9]{1,10}(\.[0-9]{1,3})?[smhd]){1,4}"  # a duration
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[-+][0-9:]+)",
    re.ASCII,
)
"""Quantities, durations and times."""

INDEXES = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", re.ASCII)
"""The indexes of a Job, such as ``1,3-5``."""

STAMP = re.compile(r"[0-9a-f]{1,32}/[1-9][0-9]{0,8}(/whole)?", re.ASCII)
"""The stamp of a bind: the random id of a run, and its minimum."""
