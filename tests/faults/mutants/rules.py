"""Mutants that ignore what a gang asks for beside capacity: racks, parts of GPUs, minimums of roles."""

from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "racks are ignored",
        "racks",
        "topology",
        (Edit("Gang.together", "{key: tuple(members) for key, members in found.items()}", "{}"),),
    ),
    Mutant(
        "the replacement of a member goes to any rack",
        "rack_of_the_others",
        "topology",
        (
            Edit("Gang.together", "list(self.alive)", "list(self.candidates)"),
            Edit(
                "Gang.together",
                """
    for pod in self.alive:
        if own := required_by(pod):
            found.setdefault((meant.get(own, own), pod.role), []).append(pod)
""",
                """
    for pod in self.candidates:
        if own := required_by(pod):
            found.setdefault((meant.get(own, own), pod.role), []).append(pod)
""",
            ),
        ),
    ),
    Mutant(
        "segments are ignored",
        "segments",
        "topology",
        (Edit("_segmented", "len(uids) == size", "False"),),
    ),
    Mutant(
        "the replacement of a member leaves its segment",
        "segment_of_the_others",
        "topology",
        (Edit("begun_segments", "any(pod.node_name for pod in segment)", "False"),),
    ),
    Mutant(
        "members are bound before their volumes",
        "volumes_that_are_provisioned",
        "volume",
        (
            Edit(
                "Transaction.commit",
                "self.volumes if self.volumes is not None and self.volumes.are_missing(assignments) else None",
                "None",
            ),
        ),
    ),
    Mutant(
        "claims count as bound as soon as their volumes are asked for",
        "volumes_that_come_late",
        "volume",
        (
            Edit(
                "VolumeBinder._is_bound",
                "claim is not None and bool(claim.volume_name) and (self.view.volumes.volumes.get(claim.volume_name) is not None)",
                "claim is not None",
            ),
        ),
    ),
    Mutant(
        "the bind doesn't name the pod's GPU",
        "parts_of_devices",
        "device",
        (
            Edit(
                "Transaction._gpu_annotations",
                "annotations_of(node.shared, spec.share, spec.device_container, assignment.devices, node.name, self.now())",
                "{} and annotations_of(node.shared, spec.share, spec.device_container, assignment.devices, node.name, self.now())",
            ),
        ),
    ),
    Mutant(
        "used parts of GPUs count as free",
        "parts_of_devices",
        "device",
        (
            Edit("SharedDevices.add", "self._change(node_name, spec, taken, -1)", "pass"),
            Edit("SharedDevices.subtract", "self._change(node_name, spec, taken, +1)", "pass"),
        ),
    ),
    Mutant(
        "after a restart all GPUs count as free",
        "parts_after_a_crash",
        "device",
        (
            Edit("SharedDevices.count", "node_name in names", "False"),
            Edit("SharedDevices.add", "-1", "-1 if len(self._rows) > 1 else 0"),
        ),
    ),
    Mutant(
        "all members of a gang get the same GPU",
        "parts_of_devices",
        "device",
        (
            Edit(
                "_device_positions",
                """
    positions = iter(found)
    return [tuple((next(positions) for _ in parts)) for _, parts in asked]
""",
                "return [tuple(range(len(parts))) for _, parts in asked]",
            ),
            Edit("SharedDevices.is_overbooked", "any((uuid not in usable or named[usable[uuid]] < 0 for uuid in uuids))", "False"),
        ),
    ),
    Mutant(
        "a role that lacks members doesn't count as missing",
        "role_lost",
        "unresolved",
        (Edit("Gang.missing_of_stamped", "max(missing, sum(self.lacking.values()))", "missing"),),
    ),
)
