#!/usr/bin/env bash
# Runs the end-to-end tests on a kind cluster, if there is a docker daemon; called by `make e2e-kind`. The operator is deployed from config/.
# Most nodes, and their GPUs, are fake ones that the tests add. They are run by kwok, which is built with Go if it is not installed.
# kind's own nodes run the operator, and pods that need real kubelets.
#
#   BASE=python:3.13-slim                  base of the image, instead of the Dockerfile's.
#   KIND_NODE_IMAGE=kindest/node:v1.34.11  node image with another Kubernetes than kind's default.
#   E2E_LOGS=folder                        folder of the logs of a failed run (default: build/e2e-kind/logs).
#   PYTHON=python3                         an environment with the tests' dependencies (default: .venv/bin/python).
#
# Arguments go to pytest. The cluster is deleted at the end, even after a failure. The kubeconfig in use is not changed.
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
    fail "a cluster named $cluster exists; if it is not in use: kind delete cluster --name $cluster"
fi

# Runs at the end, even if a command has failed or the user has interrupted the script.
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
# The classic builder builds every stage, so the stage that BASE replaces is removed.
sed "${BASE:+/ AS pinned$/d}" Dockerfile | BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build --tag "$image" ${BASE:+--build-arg BASE="$BASE"} --file - .

mkdir -p "$folder"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "creating the cluster $cluster"
# --retain: if a node doesn't start, its logs show why.
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
# The operator also runs on the control plane's node, and on the nodes that the tests cordon to keep other pods away.
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
