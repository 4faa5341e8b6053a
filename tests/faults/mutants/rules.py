"""Mutants that forget what a gang asks for beside room: racks, parts of GPUs, minimums of roles."""

from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "racks are ignored",
        "racks",
        "topology",
        (
            Edit(
                "model/gang.py",
                "        return {key: tuple(members) for key, members in found.items()}\n",
                "        return {}\n",
            ),
        ),
    ),
    Mutant(
        "whoever replaces a member goes to any rack",
        "rack_of_the_others",
        "topology",
        (
            Edit(
                "model/gang.py",
                '        for pod in self.alive:\n            own = pod.option("required-topology")\n',
                '        for pod in self.candidates:\n            own = pod.option("required-topology")\n',
            ),
        ),
    ),
    Mutant(
        "the GPU that a pod is to have isn't written",
        "parts_of_devices",
        "device",
        (
            Edit(
                "binding/transaction.py", "        return annotations_of(node.shared,", "        return {} and annotations_of(node.shared,"
            ),
        ),
    ),
    Mutant(
        "parts of GPUs that pods have are free",
        "parts_of_devices",
        "device",
        (
            Edit(
                "cluster/gpu_devices.py",
                "        self._change(node_name, spec, taken, -1)\n\n    def subtract",
                "        pass\n\n    def subtract",
            ),
            Edit(
                "cluster/gpu_devices.py",
                "        self._change(node_name, spec, taken, +1)\n",
                "        pass\n",
            ),
        ),
    ),
    Mutant(
        "who has just started takes all GPUs for free",
        "parts_after_a_crash",
        "device",
        (
            Edit(
                "cluster/gpu_devices.py",
                "            if node_name in names:\n                self._change",
                "            if False:\n                self._change",
            ),
            Edit(
                "cluster/gpu_devices.py",
                "        self._change(node_name, spec, taken, -1)\n\n    def subtract",
                "        self._change(node_name, spec, taken, -1 if len(self._rows) > 1 else 0)\n\n    def subtract",
            ),
        ),
    ),
    Mutant(
        "all of a gang have the same GPU",
        "parts_of_devices",
        "device",
        (
            Edit(
                "placement/rules/verify.py",
                "    places = iter(found)\n    return [tuple(next(places) for _ in parts) for _, parts in asked]\n",
                "    return [tuple(range(len(parts))) for _, parts in asked]\n",
            ),
            Edit("cluster/gpu_devices.py", "if any(uuid not in usable or named[usable[uuid]] < 0 for uuid in uuids):", "if False:"),
        ),
    ),
    Mutant(
        "a role that lacks members owes nothing",
        "role_lost",
        "unresolved",
        (
            Edit(
                "model/gang.py",
                "        return max(owed, sum(self.lacking.values())) if 0 <",
                "        return owed if 0 <",
            ),
        ),
    ),
)
