"""The fields of the Kubernetes objects that clients send as protobuf: numbers on the wire, and names and types in JSON.

The table is taken from the tags of the Go types in k8s.io/api and k8s.io/apimachinery v0.37.0 (types.go). It holds the kinds that kubectl's
typed commands send, and all types within them. An object of any other kind is refused. To add a kind, add its lines to the table and its
name to ``KINDS``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Shape(Enum):
    """The form in which a field occurs in a message: one value, a list, or a map."""

    ONE = ""
    LIST = "["
    MAP = "{"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    name: str
    """Name in JSON; empty if JSON has the fields of the inner message in place of this field."""
    type: str
    shape: Shape
    keeps_zero: bool
    """True if JSON keeps a zero. Other fields are sent even when they are unset, so JSON leaves their zeros out."""


KINDS = frozenset(
    (
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DeleteOptions", "Deployment", "Ingress", "Job", "Namespace",
        "PodDisruptionBudget", "PriorityClass", "ResourceQuota", "Role", "RoleBinding", "Secret", "SelfSubjectAccessReview",
        "SelfSubjectReview", "SelfSubjectRulesReview", "Service", "ServiceAccount",
    )
)  # fmt: skip
"""The messages that are objects of their own. A message has the name of its kind, without the group."""


def _messages(table: str) -> Iterator[tuple[str, Mapping[int, Field]]]:
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        message, _, listed = line.partition(":")
        yield message, dict(_field(text) for text in listed.split(",") if text)


def _field(text: str) -> tuple[int, Field]:
    placed, _, kind = text.strip().partition(" ")
    name, _, number = placed.partition("=")
    return int(number), Field(name, kind.strip("[]{}!"), Shape(kind[0] if kind[0] in "[{" else ""), kind.endswith("!"))


# [type] is a list, {type} a map from strings. An exclamation mark: JSON keeps a zero. No name: JSON has the inner fields in its place.
_TABLE = """
Namespace: metadata=1 ObjectMeta, spec=2 NamespaceSpec, status=3 NamespaceStatus
ObjectMeta: name=1 string, generateName=2 string, namespace=3 string, selfLink=4 string, uid=5 string, resourceVersion=6 string,
    generation=7 int64, creationTimestamp=8 Time, deletionTimestamp=9 Time, deletionGracePeriodSeconds=10 int64!, labels=11 {string},
    annotations=12 {string}, ownerReferences=13 [OwnerReference], finalizers=14 [string], managedFields=17 [ManagedFieldsEntry]
OwnerReference: apiVersion=5 string!, kind=1 string!, name=3 string!, uid=4 string!, controller=6 bool!, blockOwnerDeletion=7 bool!
ManagedFieldsEntry: manager=1 string, operation=2 string, apiVersion=3 string, time=4 Time, fieldsType=6 string, fieldsV1=7 FieldsV1,
    subresource=8 string
NamespaceSpec: finalizers=1 [string]
NamespaceStatus: phase=1 string, conditions=2 [NamespaceCondition]
NamespaceCondition: type=1 string!, status=2 string!, lastTransitionTime=4 Time, reason=5 string, message=6 string
ConfigMap: metadata=1 ObjectMeta, immutable=4 bool!, data=2 {string}, binaryData=3 {bytes}
Secret: metadata=1 ObjectMeta, immutable=5 bool!, data=2 {bytes}, stringData=4 {string}, type=3 string
ServiceAccount: metadata=1 ObjectMeta, secrets=2 [ObjectReference], imagePullSecrets=3 [LocalObjectReference],
    automountServiceAccountToken=4 bool!
ObjectReference: kind=1 string, namespace=2 string, name=3 string, uid=4 string, apiVersion=5 string, resourceVersion=6 string,
    fieldPath=7 string
LocalObjectReference: name=1 string
Service: metadata=1 ObjectMeta, spec=2 ServiceSpec, status=3 ServiceStatus
ServiceSpec: ports=1 [ServicePort], selector=2 {string}, clusterIP=3 string, clusterIPs=18 [string], type=4 string, externalIPs=5 [string],
    sessionAffinity=7 string, loadBalancerIP=8 string, loadBalancerSourceRanges=9 [string], externalName=10 string,
    externalTrafficPolicy=11 string, healthCheckNodePort=12 int32, publishNotReadyAddresses=13 bool,
    sessionAffinityConfig=14 SessionAffinityConfig, ipFamilies=19 [string], ipFamilyPolicy=17 string!,
    allocateLoadBalancerNodePorts=20 bool!, loadBalancerClass=21 string!, internalTrafficPolicy=22 string!, trafficDistribution=23 string!
ServicePort: name=1 string, protocol=2 string, appProtocol=6 string!, port=3 int32!, targetPort=4 IntOrString, nodePort=5 int32
SessionAffinityConfig: clientIP=1 ClientIPConfig
ClientIPConfig: timeoutSeconds=1 int32!
ServiceStatus: loadBalancer=1 LoadBalancerStatus, conditions=2 [Condition]
LoadBalancerStatus: ingress=1 [LoadBalancerIngress]
LoadBalancerIngress: ip=1 string, hostname=2 string, ipMode=3 string!, ports=4 [PortStatus]
PortStatus: port=1 int32!, protocol=2 string!, error=3 string!
Condition: type=1 string!, status=2 string!, observedGeneration=3 int64, lastTransitionTime=4 Time, reason=5 string!, message=6 string!
ResourceQuota: metadata=1 ObjectMeta, spec=2 ResourceQuotaSpec, status=3 ResourceQuotaStatus
ResourceQuotaSpec: hard=1 {Quantity}, scopes=2 [string], scopeSelector=3 ScopeSelector
ScopeSelector: matchExpressions=1 [ScopedResourceSelectorRequirement]
ScopedResourceSelectorRequirement: scopeName=1 string!, operator=2 string!, values=3 [string]
ResourceQuotaStatus: hard=1 {Quantity}, used=2 {Quantity}
Deployment: metadata=1 ObjectMeta, spec=2 DeploymentSpec, status=3 DeploymentStatus
DeploymentSpec: replicas=1 int32!, selector=2 LabelSelector, template=3 PodTemplateSpec, strategy=4 DeploymentStrategy,
    minReadySeconds=5 int32, revisionHistoryLimit=6 int32!, paused=7 bool, progressDeadlineSeconds=9 int32!
LabelSelector: matchLabels=1 {string}, matchExpressions=2 [LabelSelectorRequirement]
LabelSelectorRequirement: key=1 string!, operator=2 string!, values=3 [string]
PodTemplateSpec: metadata=1 ObjectMeta, spec=2 PodSpec
PodSpec: volumes=1 [Volume], initContainers=20 [Container], containers=2 [Container], ephemeralContainers=34 [EphemeralContainer],
    restartPolicy=3 string, terminationGracePeriodSeconds=4 int64!, activeDeadlineSeconds=5 int64!, dnsPolicy=6 string,
    nodeSelector=7 {string}, serviceAccountName=8 string, serviceAccount=9 string, automountServiceAccountToken=21 bool!,
    nodeName=10 string, hostNetwork=11 bool, hostPID=12 bool, hostIPC=13 bool, shareProcessNamespace=27 bool!,
    securityContext=14 PodSecurityContext, imagePullSecrets=15 [LocalObjectReference], hostname=16 string, subdomain=17 string,
    affinity=18 Affinity, schedulerName=19 string, tolerations=22 [Toleration], hostAliases=23 [HostAlias], priorityClassName=24 string,
    priority=25 int32!, dnsConfig=26 PodDNSConfig, readinessGates=28 [PodReadinessGate], runtimeClassName=29 string!,
    enableServiceLinks=30 bool!, preemptionPolicy=31 string!, overhead=32 {Quantity},
    topologySpreadConstraints=33 [TopologySpreadConstraint], setHostnameAsFQDN=35 bool!, os=36 PodOS, hostUsers=37 bool!,
    schedulingGates=38 [PodSchedulingGate], resourceClaims=39 [PodResourceClaim], resources=40 ResourceRequirements,
    hostnameOverride=41 string!, schedulingGroup=43 PodSchedulingGroup, evictionResponders=44 [EvictionResponder]
Volume: name=1 string!, =2 VolumeSource
VolumeSource: hostPath=1 HostPathVolumeSource, emptyDir=2 EmptyDirVolumeSource, gcePersistentDisk=3 GCEPersistentDiskVolumeSource,
    awsElasticBlockStore=4 AWSElasticBlockStoreVolumeSource, gitRepo=5 GitRepoVolumeSource, secret=6 SecretVolumeSource,
    nfs=7 NFSVolumeSource, iscsi=8 ISCSIVolumeSource, glusterfs=9 GlusterfsVolumeSource,
    persistentVolumeClaim=10 PersistentVolumeClaimVolumeSource, rbd=11 RBDVolumeSource, flexVolume=12 FlexVolumeSource,
    cinder=13 CinderVolumeSource, cephfs=14 CephFSVolumeSource, flocker=15 FlockerVolumeSource, downwardAPI=16 DownwardAPIVolumeSource,
    fc=17 FCVolumeSource, azureFile=18 AzureFileVolumeSource, configMap=19 ConfigMapVolumeSource,
    vsphereVolume=20 VsphereVirtualDiskVolumeSource, quobyte=21 QuobyteVolumeSource, azureDisk=22 AzureDiskVolumeSource,
    photonPersistentDisk=23 PhotonPersistentDiskVolumeSource, projected=26 ProjectedVolumeSource, portworxVolume=24 PortworxVolumeSource,
    scaleIO=25 ScaleIOVolumeSource, storageos=27 StorageOSVolumeSource, csi=28 CSIVolumeSource, ephemeral=29 EphemeralVolumeSource,
    image=30 ImageVolumeSource
HostPathVolumeSource: path=1 string!, type=2 string!
EmptyDirVolumeSource: medium=1 string, sizeLimit=2 Quantity, mode=3 int32!
GCEPersistentDiskVolumeSource: pdName=1 string!, fsType=2 string, partition=3 int32, readOnly=4 bool
AWSElasticBlockStoreVolumeSource: volumeID=1 string!, fsType=2 string, partition=3 int32, readOnly=4 bool
GitRepoVolumeSource: repository=1 string!, revision=2 string, directory=3 string
SecretVolumeSource: secretName=1 string, items=2 [KeyToPath], defaultMode=3 int32!, optional=4 bool!, defaultUser=5 int64!
KeyToPath: key=1 string!, path=2 string!, mode=3 int32!, user=4 int64!
NFSVolumeSource: server=1 string!, path=2 string!, readOnly=3 bool
ISCSIVolumeSource: targetPortal=1 string!, iqn=2 string!, lun=3 int32!, iscsiInterface=4 string, fsType=5 string, readOnly=6 bool,
    portals=7 [string], chapAuthDiscovery=8 bool, chapAuthSession=11 bool, secretRef=10 LocalObjectReference, initiatorName=12 string!
GlusterfsVolumeSource: endpoints=1 string!, path=2 string!, readOnly=3 bool
PersistentVolumeClaimVolumeSource: claimName=1 string!, readOnly=2 bool
RBDVolumeSource: monitors=1 [string], image=2 string!, fsType=3 string, pool=4 string, user=5 string, keyring=6 string,
    secretRef=7 LocalObjectReference, readOnly=8 bool
FlexVolumeSource: driver=1 string!, fsType=2 string, secretRef=3 LocalObjectReference, readOnly=4 bool, options=5 {string}
CinderVolumeSource: volumeID=1 string!, fsType=2 string, readOnly=3 bool, secretRef=4 LocalObjectReference
CephFSVolumeSource: monitors=1 [string], path=2 string, user=3 string, secretFile=4 string, secretRef=5 LocalObjectReference,
    readOnly=6 bool
FlockerVolumeSource: datasetName=1 string, datasetUUID=2 string
DownwardAPIVolumeSource: items=1 [DownwardAPIVolumeFile], defaultMode=2 int32!, defaultUser=3 int64!
DownwardAPIVolumeFile: path=1 string!, fieldRef=2 ObjectFieldSelector, resourceFieldRef=3 ResourceFieldSelector, mode=4 int32!,
    user=5 int64!
ObjectFieldSelector: apiVersion=1 string, fieldPath=2 string!
ResourceFieldSelector: containerName=1 string, resource=2 string!, divisor=3 Quantity
FCVolumeSource: targetWWNs=1 [string], lun=2 int32!, fsType=3 string, readOnly=4 bool, wwids=5 [string]
AzureFileVolumeSource: secretName=1 string!, shareName=2 string!, readOnly=3 bool
ConfigMapVolumeSource: =1 LocalObjectReference, items=2 [KeyToPath], defaultMode=3 int32!, optional=4 bool!, defaultUser=5 int64!
VsphereVirtualDiskVolumeSource: volumePath=1 string!, fsType=2 string, storagePolicyName=3 string, storagePolicyID=4 string
QuobyteVolumeSource: registry=1 string!, volume=2 string!, readOnly=3 bool, user=4 string, group=5 string, tenant=6 string
AzureDiskVolumeSource: diskName=1 string!, diskURI=2 string!, cachingMode=3 string!, fsType=4 string!, readOnly=5 bool!, kind=6 string!
PhotonPersistentDiskVolumeSource: pdID=1 string!, fsType=2 string
ProjectedVolumeSource: sources=1 [VolumeProjection], defaultMode=2 int32!, defaultUser=3 int64!
VolumeProjection: secret=1 SecretProjection, downwardAPI=2 DownwardAPIProjection, configMap=3 ConfigMapProjection,
    serviceAccountToken=4 ServiceAccountTokenProjection, clusterTrustBundle=5 ClusterTrustBundleProjection,
    podCertificate=6 PodCertificateProjection
SecretProjection: =1 LocalObjectReference, items=2 [KeyToPath], optional=4 bool!
DownwardAPIProjection: items=1 [DownwardAPIVolumeFile]
ConfigMapProjection: =1 LocalObjectReference, items=2 [KeyToPath], optional=4 bool!
ServiceAccountTokenProjection: audience=1 string, expirationSeconds=2 int64!, path=3 string!, user=4 int64!
ClusterTrustBundleProjection: name=1 string!, signerName=2 string!, labelSelector=3 LabelSelector, optional=5 bool!, path=4 string!,
    user=6 int64!
PodCertificateProjection: signerName=1 string, keyType=2 string, maxExpirationSeconds=3 int32!, credentialBundlePath=4 string,
    keyPath=5 string, certificateChainPath=6 string, userAnnotations=7 {string}, user=8 int64!
PortworxVolumeSource: volumeID=1 string!, fsType=2 string, readOnly=3 bool
ScaleIOVolumeSource: gateway=1 string!, system=2 string!, secretRef=3 LocalObjectReference, sslEnabled=4 bool, protectionDomain=5 string,
    storagePool=6 string, storageMode=7 string, volumeName=8 string, fsType=9 string, readOnly=10 bool
StorageOSVolumeSource: volumeName=1 string, volumeNamespace=2 string, fsType=3 string, readOnly=4 bool, secretRef=5 LocalObjectReference
CSIVolumeSource: driver=1 string!, readOnly=2 bool!, fsType=3 string!, volumeAttributes=4 {string},
    nodePublishSecretRef=5 LocalObjectReference
EphemeralVolumeSource: volumeClaimTemplate=1 PersistentVolumeClaimTemplate
PersistentVolumeClaimTemplate: metadata=1 ObjectMeta, spec=2 PersistentVolumeClaimSpec
PersistentVolumeClaimSpec: accessModes=1 [string], selector=4 LabelSelector, resources=2 VolumeResourceRequirements, volumeName=3 string,
    storageClassName=5 string!, volumeMode=6 string!, dataSource=7 TypedLocalObjectReference, dataSourceRef=8 TypedObjectReference,
    volumeAttributesClassName=9 string!
VolumeResourceRequirements: limits=1 {Quantity}, requests=2 {Quantity}
TypedLocalObjectReference: apiGroup=1 string!, kind=2 string!, name=3 string!
TypedObjectReference: apiGroup=1 string!, kind=2 string!, name=3 string!, namespace=4 string!
ImageVolumeSource: reference=1 string, pullPolicy=2 string
Container: name=1 string!, image=2 string, command=3 [string], args=4 [string], workingDir=5 string, ports=6 [ContainerPort],
    envFrom=19 [EnvFromSource], env=7 [EnvVar], resources=8 ResourceRequirements, resizePolicy=23 [ContainerResizePolicy],
    restartPolicy=24 string!, restartPolicyRules=25 [ContainerRestartRule], volumeMounts=9 [VolumeMount], volumeDevices=21 [VolumeDevice],
    livenessProbe=10 Probe, readinessProbe=11 Probe, startupProbe=22 Probe, lifecycle=12 Lifecycle, terminationMessagePath=13 string,
    terminationMessagePolicy=20 string, imagePullPolicy=14 string, securityContext=15 SecurityContext, stdin=16 bool, stdinOnce=17 bool,
    tty=18 bool
ContainerPort: name=1 string, hostPort=2 int32, containerPort=3 int32!, protocol=4 string, hostIP=5 string
EnvFromSource: prefix=1 string, configMapRef=2 ConfigMapEnvSource, secretRef=3 SecretEnvSource
ConfigMapEnvSource: =1 LocalObjectReference, optional=2 bool!
SecretEnvSource: =1 LocalObjectReference, optional=2 bool!
EnvVar: name=1 string!, value=2 string, valueFrom=3 EnvVarSource
EnvVarSource: fieldRef=1 ObjectFieldSelector, resourceFieldRef=2 ResourceFieldSelector, configMapKeyRef=3 ConfigMapKeySelector,
    secretKeyRef=4 SecretKeySelector, fileKeyRef=5 FileKeySelector
ConfigMapKeySelector: =1 LocalObjectReference, key=2 string!, optional=3 bool!
SecretKeySelector: =1 LocalObjectReference, key=2 string!, optional=3 bool!
FileKeySelector: volumeName=1 string!, path=2 string!, key=3 string!, optional=4 bool!
ResourceRequirements: limits=1 {Quantity}, requests=2 {Quantity}, claims=3 [ResourceClaim]
ResourceClaim: name=1 string!, request=2 string
ContainerResizePolicy: resourceName=1 string!, restartPolicy=2 string!
ContainerRestartRule: action=1 string, exitCodes=2 ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator=1 string, values=2 [int32]
VolumeMount: name=1 string!, readOnly=2 bool, recursiveReadOnly=7 string!, mountPath=3 string!, subPath=4 string,
    mountPropagation=5 string!, subPathExpr=6 string, bindMountOptions=8 [string]
VolumeDevice: name=1 string!, devicePath=2 string!
Probe: =1 ProbeHandler, initialDelaySeconds=2 int32, timeoutSeconds=3 int32, periodSeconds=4 int32, successThreshold=5 int32,
    failureThreshold=6 int32, terminationGracePeriodSeconds=7 int64!
ProbeHandler: exec=1 ExecAction, httpGet=2 HTTPGetAction, tcpSocket=3 TCPSocketAction, grpc=4 GRPCAction
ExecAction: command=1 [string]
HTTPGetAction: path=1 string, port=2 IntOrString, host=3 string, scheme=4 string, httpHeaders=5 [HTTPHeader], protocol=6 string!
HTTPHeader: name=1 string!, value=2 string!
TCPSocketAction: port=1 IntOrString, host=2 string
GRPCAction: port=1 int32!, service=2 string!, mode=3 string!
Lifecycle: postStart=1 LifecycleHandler, preStop=2 LifecycleHandler, stopSignal=3 string!
LifecycleHandler: exec=1 ExecAction, httpGet=2 HTTPGetAction, tcpSocket=3 TCPSocketAction, sleep=4 SleepAction
SleepAction: seconds=1 int64!
SecurityContext: capabilities=1 Capabilities, privileged=2 bool!, seLinuxOptions=3 SELinuxOptions,
    windowsOptions=10 WindowsSecurityContextOptions, runAsUser=4 int64!, runAsGroup=8 int64!, runAsNonRoot=5 bool!,
    readOnlyRootFilesystem=6 bool!, allowPrivilegeEscalation=7 bool!, procMount=9 string!, seccompProfile=11 SeccompProfile,
    appArmorProfile=12 AppArmorProfile
Capabilities: add=1 [string], drop=2 [string]
SELinuxOptions: user=1 string, role=2 string, type=3 string, level=4 string
WindowsSecurityContextOptions: gmsaCredentialSpecName=1 string!, gmsaCredentialSpec=2 string!, runAsUserName=3 string!, hostProcess=4 bool!
SeccompProfile: type=1 string!, localhostProfile=2 string!
AppArmorProfile: type=1 string!, localhostProfile=2 string!
EphemeralContainer: =1 Container, targetContainerName=2 string
PodSecurityContext: seLinuxOptions=1 SELinuxOptions, windowsOptions=8 WindowsSecurityContextOptions, runAsUser=2 int64!,
    runAsGroup=6 int64!, runAsNonRoot=3 bool!, supplementalGroups=4 [int64], supplementalGroupsPolicy=12 string!, fsGroup=5 int64!,
    sysctls=7 [Sysctl], fsGroupChangePolicy=9 string!, seccompProfile=10 SeccompProfile, appArmorProfile=11 AppArmorProfile,
    seLinuxChangePolicy=13 string!
Sysctl: name=1 string!, value=2 string!
Affinity: nodeAffinity=1 NodeAffinity, podAffinity=2 PodAffinity, podAntiAffinity=3 PodAntiAffinity
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution=1 NodeSelector,
    preferredDuringSchedulingIgnoredDuringExecution=2 [PreferredSchedulingTerm]
NodeSelector: nodeSelectorTerms=1 [NodeSelectorTerm]
NodeSelectorTerm: matchExpressions=1 [NodeSelectorRequirement], matchFields=2 [NodeSelectorRequirement]
NodeSelectorRequirement: key=1 string!, operator=2 string!, values=3 [string]
PreferredSchedulingTerm: weight=1 int32!, preference=2 NodeSelectorTerm
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution=1 [PodAffinityTerm],
    preferredDuringSchedulingIgnoredDuringExecution=2 [WeightedPodAffinityTerm]
PodAffinityTerm: labelSelector=1 LabelSelector, namespaces=2 [string], topologyKey=3 string!, namespaceSelector=4 LabelSelector,
    matchLabelKeys=5 [string], mismatchLabelKeys=6 [string]
WeightedPodAffinityTerm: weight=1 int32!, podAffinityTerm=2 PodAffinityTerm
PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution=1 [PodAffinityTerm],
    preferredDuringSchedulingIgnoredDuringExecution=2 [WeightedPodAffinityTerm]
Toleration: key=1 string, operator=2 string, value=3 string, effect=4 string, tolerationSeconds=5 int64!
HostAlias: ip=1 string!, hostnames=2 [string]
PodDNSConfig: nameservers=1 [string], searches=2 [string], options=3 [PodDNSConfigOption]
PodDNSConfigOption: name=1 string, value=2 string!
PodReadinessGate: conditionType=1 string!
TopologySpreadConstraint: maxSkew=1 int32!, topologyKey=2 string!, whenUnsatisfiable=3 string!, labelSelector=4 LabelSelector,
    minDomains=5 int32!, nodeAffinityPolicy=6 string!, nodeTaintsPolicy=7 string!, matchLabelKeys=8 [string]
PodOS: name=1 string!
PodSchedulingGate: name=1 string!
PodResourceClaim: name=1 string!, resourceClaimName=3 string!, resourceClaimTemplateName=4 string!
PodSchedulingGroup: podGroupName=1 string!
EvictionResponder: name=1 string!, priority=2 int32!
DeploymentStrategy: type=1 string, rollingUpdate=2 RollingUpdateDeployment
RollingUpdateDeployment: maxUnavailable=1 IntOrString, maxSurge=2 IntOrString
DeploymentStatus: observedGeneration=1 int64, replicas=2 int32, updatedReplicas=3 int32, readyReplicas=7 int32, availableReplicas=4 int32,
    unavailableReplicas=5 int32, terminatingReplicas=9 int32!, conditions=6 [DeploymentCondition], collisionCount=8 int32!
DeploymentCondition: type=1 string!, status=2 string!, lastUpdateTime=6 Time, lastTransitionTime=7 Time, reason=4 string, message=5 string
Job: metadata=1 ObjectMeta, spec=2 JobSpec, status=3 JobStatus
JobSpec: parallelism=1 int32!, completions=2 int32!, activeDeadlineSeconds=3 int64!, podFailurePolicy=11 PodFailurePolicy,
    successPolicy=16 SuccessPolicy, backoffLimit=7 int32!, backoffLimitPerIndex=12 int32!, maxFailedIndexes=13 int32!,
    selector=4 LabelSelector, manualSelector=5 bool!, template=6 PodTemplateSpec, ttlSecondsAfterFinished=8 int32!,
    completionMode=9 string!, suspend=10 bool!, podReplacementPolicy=14 string!, managedBy=15 string!,
    scheduling=17 JobSchedulingConfiguration
PodFailurePolicy: rules=1 [PodFailurePolicyRule]
PodFailurePolicyRule: action=1 string!, onExitCodes=2 PodFailurePolicyOnExitCodesRequirement,
    onPodConditions=3 [PodFailurePolicyOnPodConditionsPattern]
PodFailurePolicyOnExitCodesRequirement: containerName=1 string!, operator=2 string!, values=3 [int32]
PodFailurePolicyOnPodConditionsPattern: type=1 string!, status=2 string!
SuccessPolicy: rules=1 [SuccessPolicyRule]
SuccessPolicyRule: succeededIndexes=1 string!, succeededCount=2 int32!
JobSchedulingConfiguration: schedulingPolicy=1 WorkloadPodGroupSchedulingPolicy,
    schedulingConstraints=2 WorkloadPodGroupSchedulingConstraints, disruptionMode=3 WorkloadPodGroupDisruptionMode,
    resourceClaims=4 [WorkloadPodGroupResourceClaim]
WorkloadPodGroupSchedulingPolicy: basic=1 WorkloadPodGroupBasicSchedulingPolicy, gang=2 WorkloadPodGroupGangSchedulingPolicy
WorkloadPodGroupBasicSchedulingPolicy:
WorkloadPodGroupGangSchedulingPolicy: minCount=1 int32!
WorkloadPodGroupSchedulingConstraints: topology=1 [TopologyConstraint]
TopologyConstraint: key=1 string!
WorkloadPodGroupDisruptionMode: single=1 WorkloadPodGroupSingleDisruptionMode, all=2 WorkloadPodGroupAllDisruptionMode
WorkloadPodGroupSingleDisruptionMode:
WorkloadPodGroupAllDisruptionMode:
WorkloadPodGroupResourceClaim: name=1 string!, resourceClaimName=2 string!, resourceClaimTemplateName=3 string!
JobStatus: conditions=1 [JobCondition], startTime=2 Time, completionTime=3 Time, active=4 int32, succeeded=5 int32, failed=6 int32,
    terminating=11 int32!, completedIndexes=7 string, failedIndexes=10 string!, uncountedTerminatedPods=8 UncountedTerminatedPods,
    ready=9 int32!
JobCondition: type=1 string!, status=2 string!, lastProbeTime=3 Time, lastTransitionTime=4 Time, reason=5 string, message=6 string
UncountedTerminatedPods: succeeded=1 [string], failed=2 [string]
PodDisruptionBudget: metadata=1 ObjectMeta, spec=2 PodDisruptionBudgetSpec, status=3 PodDisruptionBudgetStatus
PodDisruptionBudgetSpec: minAvailable=1 IntOrString, selector=2 LabelSelector, maxUnavailable=3 IntOrString,
    unhealthyPodEvictionPolicy=4 string!
PodDisruptionBudgetStatus: observedGeneration=1 int64, disruptedPods=2 {Time}, disruptionsAllowed=3 int32!, currentHealthy=4 int32!,
    desiredHealthy=5 int32!, expectedPods=6 int32!, conditions=7 [Condition]
PriorityClass: metadata=1 ObjectMeta, value=2 int32!, globalDefault=3 bool, description=4 string, preemptionPolicy=5 string!
ClusterRole: metadata=1 ObjectMeta, rules=2 [PolicyRule], aggregationRule=3 AggregationRule
PolicyRule: verbs=1 [string], apiGroups=2 [string], resources=3 [string], resourceNames=4 [string], nonResourceURLs=5 [string]
AggregationRule: clusterRoleSelectors=1 [LabelSelector]
ClusterRoleBinding: metadata=1 ObjectMeta, subjects=2 [Subject], roleRef=3 RoleRef
Subject: kind=1 string!, apiGroup=2 string, name=3 string!, namespace=4 string
RoleRef: apiGroup=1 string!, kind=2 string!, name=3 string!
Role: metadata=1 ObjectMeta, rules=2 [PolicyRule]
RoleBinding: metadata=1 ObjectMeta, subjects=2 [Subject], roleRef=3 RoleRef
Ingress: metadata=1 ObjectMeta, spec=2 IngressSpec, status=3 IngressStatus
IngressSpec: ingressClassName=4 string!, defaultBackend=1 IngressBackend, tls=2 [IngressTLS], rules=3 [IngressRule]
IngressBackend: service=4 IngressServiceBackend, resource=3 TypedLocalObjectReference
IngressServiceBackend: name=1 string!, port=2 ServiceBackendPort
ServiceBackendPort: name=1 string, number=2 int32
IngressTLS: hosts=1 [string], secretName=2 string
IngressRule: host=1 string, =2 IngressRuleValue
IngressRuleValue: http=1 HTTPIngressRuleValue
HTTPIngressRuleValue: paths=1 [HTTPIngressPath]
HTTPIngressPath: path=1 string, pathType=3 string!, backend=2 IngressBackend
IngressStatus: loadBalancer=1 IngressLoadBalancerStatus
IngressLoadBalancerStatus: ingress=1 [IngressLoadBalancerIngress]
IngressLoadBalancerIngress: ip=1 string, hostname=2 string, ports=4 [IngressPortStatus]
IngressPortStatus: port=1 int32!, protocol=2 string!, error=3 string!
SelfSubjectAccessReview: metadata=1 ObjectMeta, spec=2 SelfSubjectAccessReviewSpec
SelfSubjectAccessReviewSpec: resourceAttributes=1 ResourceAttributes, nonResourceAttributes=2 NonResourceAttributes
ResourceAttributes: namespace=1 string, verb=2 string, group=3 string, version=4 string, resource=5 string, subresource=6 string,
    name=7 string, fieldSelector=8 FieldSelectorAttributes, labelSelector=9 LabelSelectorAttributes
FieldSelectorAttributes: rawSelector=1 string, requirements=2 [FieldSelectorRequirement]
FieldSelectorRequirement: key=1 string!, operator=2 string!, values=3 [string]
LabelSelectorAttributes: rawSelector=1 string, requirements=2 [LabelSelectorRequirement]
NonResourceAttributes: path=1 string, verb=2 string
SelfSubjectRulesReview: metadata=1 ObjectMeta, spec=2 SelfSubjectRulesReviewSpec
SelfSubjectRulesReviewSpec: namespace=1 string
SelfSubjectReview: metadata=1 ObjectMeta
DeleteOptions: gracePeriodSeconds=1 int64!, preconditions=2 Preconditions, orphanDependents=3 bool!, propagationPolicy=4 string!,
    dryRun=5 [string], ignoreStoreReadErrorWithClusterBreakingPotential=6 bool!
Preconditions: uid=1 string!, resourceVersion=2 string!
"""

MESSAGES: Mapping[str, Mapping[int, Field]] = dict(_messages(_TABLE))
"""Name of each message to its fields by number."""
