#!/usr/bin/env bash
# What `make e2e-kind` does when there is a docker daemon: the end-to-end tests on a kind cluster, with the operator deployed from config/
# as on any cluster. Most nodes, and their GPUs, are fake ones that the tests add (kwok, built with Go when it is not installed); kind's own
# run the operator, and what only real kubelets can.
#
#   BASE=python:3.13-slim                  what the image is built on instead of what the Dockerfile names
#   KIND_NODE_IMAGE=kindest/node:v1.34.11  another Kubernetes than kind's own choice
#   E2E_LOGS=folder                        where logs go when something fails [build/e2e-kind/logs]
#   PYTHON=python3                         an environment with the tests' dependencies [.venv/bin/python]
#
# Arguments go to pytest. The cluster is deleted at the end, whatever the end is; the kubeconfig in use is not touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

cluster=allaboard-e2e
image=allaboard:e2e
folder=$PWD/build/e2e-kind
logs=${E2E_LOGS:-$folder/logs}
python=${PYTHON:-.venv/bin/python}
export KUBECONFIG=$folder/kubeconfig

fail() {
    echo "e2e-kind: $*" >&2
    exit 2
}

say() {
    echo "==> $*" >&2
}

command -v docker >/dev/null || fail "docker is not installed: https://docs.docker.com/engine/install"
docker info >/dev/null 2>&1 || fail "docker is installed, but its daemon does not answer: start it, or set DOCKER_HOST"
command -v kind >/dev/null || fail "kind is not installed: go install sigs.k8s.io/kind@v0.33.0, or https://kind.sigs.k8s.io"
command -v kubectl >/dev/null || fail "kubectl is not installed: https://kubernetes.io/docs/tasks/tools"
command -v "$python" >/dev/null || fail "$python is not there: run this with \`make e2e-kind\`, or set PYTHON"
clusters=$(kind get clusters) || fail "kind can't list its clusters"
if grep -qx "$cluster" <<<"$clusters"; then
    fail "a cluster named $cluster is there already; if nobody uses it: kind delete cluster --name $cluster"
fi

# Runs at every end, also when a command has failed or the user has interrupted.
finish() {
    status=$?
    trap - EXIT
    trap '' INT TERM
    set +e
    if [ "$status" -ne 0 ]; then
        mkdir -p "$logs"
        kind export logs "$logs" --name "$cluster"
        for kind in nodes pods podgroups events; do
            kubectl get "$kind" --all-namespaces --output wide >"$logs/$kind.txt" 2>&1
        done
        say "failed; logs are in $logs"
    fi
    kind delete cluster --name "$cluster" --kubeconfig "$KUBECONFIG"
    exit "$status"
}

say "building $image"
# kind can't load an image with an attestation from a Docker that keeps images in containerd (kind issue 3795).
# The classic builder makes every stage there is, so that the one that is not built on has to go.
sed "${BASE:+/ AS pinned$/d}" Dockerfile | BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build --tag "$image" ${BASE:+--build-arg BASE="$BASE"} --file - .

mkdir -p "$folder"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "creating the cluster $cluster"
# --retain: when a node doesn't come up, its logs are what tells why.
kind create cluster --name "$cluster" --config tests/e2e/kind/cluster.yaml ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"} --wait 3m --retain
kubectl wait --for=condition=Ready nodes --all --timeout=3m
for node in $(kind get nodes --name "$cluster"); do
    docker cp tests/e2e/kind/kept-logs.service "$node:/etc/systemd/system/"
    docker exec "$node" systemctl enable --now kept-logs.service
done
kind load docker-image "$image" --name "$cluster"
"$python" -m tests.e2e.kind.load "$folder/rendezvous.tar"
kind load image-archive "$folder/rendezvous.tar" --name "$cluster"

say "deploying config/"
cat >"$folder/kustomization.yaml" <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../config
images:
  - name: allaboard
    newTag: ${image#*:}
# Also on the control plane's node, and where the tests keep other pods away: on nodes that are cordoned.
patches:
  - target: {kind: Deployment}
    patch: |
      - op: add
        path: /spec/template/spec/tolerations
        value:
          - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
          - {key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}
END
kubectl apply --filename crds --filename config/namespace.yaml
kubectl wait --for=condition=Established customresourcedefinition/podgroups.scheduling.x-k8s.io --timeout=1m
kubectl apply --kustomize "$folder"
kubectl rollout status deployment/allaboard --namespace allaboard-system --timeout=3m

say "running the tests"
"$python" -m tests.e2e.controlplane build kwok training-operator.v1
export E2E_EXISTING=1 E2E_OPERATOR=deployed E2E_KIND=$cluster E2E_KIND_KUBECONFIG=$KUBECONFIG
"$python" -m pytest --home=controlplane "$@"
