"""Webhooks that set our scheduler on gang pods that name none, and refuse malformed gang labels. The webhooks are optional."""
