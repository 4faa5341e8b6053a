"""The way in for manifests that name no scheduler, and the refusal of gang labels that can't be understood. Opt-in."""
