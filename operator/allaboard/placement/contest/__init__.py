"""Several gangs that wait for the same seats, placed together."""
