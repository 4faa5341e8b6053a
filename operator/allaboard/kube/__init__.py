"""The Kubernetes API: credentials, lists, watches, paths, retries and limits of requests."""
