"""Configuration that people already have: kube-scheduler's files, read into values of ours."""
