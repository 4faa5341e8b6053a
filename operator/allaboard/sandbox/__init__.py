"""An in-process Kubernetes API with fake kubelets, for the demo, the tests and a first try with kubectl."""
