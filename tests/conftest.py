"""Settings all tests share."""

from hypothesis import HealthCheck, settings

# Shared CI machines stall now and then; a deadline per example would fail for that alone.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")
