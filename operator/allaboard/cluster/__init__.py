"""The Kubernetes API: credentials, watching, the live view."""
