"""Schedules on gangs that ask for more than capacity: one rack, parts of GPUs, a minimum of a role."""

from allaboard_sandbox import Fault, local_volume, waiting_class
from allaboard_sandbox.controllers.volume import PROVISIONER
from tests.faults.gangs import GangSpec, Role
from tests.faults.judge.facts import role_of
from tests.faults.world import World

from .ground import NEVER, end, quiet_world


def racks() -> None:
    """The nodes with the least capacity are in two racks, and the gang must share one."""
    for has_group in (False, True):
        with quiet_world() as world:
            for node, cpu in ((0, 5), (1, 8), (2, 5), (3, 2)):
                world.bind_foreign(node, cpu)
            world.add(GangSpec("gang", size=3, minimum=3, cpu=3, shares_rack=True, has_group=has_group))
            world.advance(20)
            end(world)


def rack_of_the_others() -> None:
    """A member is lost, and its replacement fits only in the other rack."""
    with quiet_world() as world:
        for node in (2, 3):
            world.bind_foreign(node, 8)
        gang = GangSpec("gang", size=4, minimum=4, cpu=3, shares_rack=True)
        world.add(gang)
        world.advance(5)
        world.cordon(0, is_cordoned=True)
        world.cordon(1, is_cordoned=True)
        world.remove_foreign()
        world.delete_member(gang, 0, grace=0)
        world.advance(30)
        world.judge.check()
        end(world)


def racks_in_two_tries() -> None:
    """A gang is partially bound when its rack is full: the missing members aren't sent to the other rack."""
    with quiet_world(startup_delay=NEVER) as world:
        for node in (2, 3):
            world.bind_foreign(node, 8)
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=3, status=503, retry_after=1, dry_run=False))
        world.add(GangSpec("gang", size=4, minimum=4, cpu=3, shares_rack=True))
        world.advance(0.3)
        for node in (0, 1):
            world.cordon(node, is_cordoned=True)
        world.remove_foreign()
        world.advance(40)
        end(world)


def segments() -> None:
    """A gang is divided into segments of two, and each rack has capacity for three members: the gang waits."""
    for has_group in (False, True):
        with quiet_world() as world:
            for node in (1, 2):
                world.bind_foreign(node, 4)
            world.add(GangSpec("gang", "recreated", size=6, minimum=6, cpu=4, shares_rack=True, segment=2, has_group=has_group))
            world.advance(20)
            world.judge.check()
            end(world)


def segment_of_the_others() -> None:
    """A member of a gang with segments is lost, and its replacement fits only in the rack that isn't its segment's."""
    with quiet_world() as world:
        world.bind_foreign(0, 4)
        gang = GangSpec("gang", "recreated", size=6, minimum=6, cpu=4, shares_rack=True, segment=2)
        world.add(gang)
        world.advance(5)
        for node in (2, 3):
            world.cordon(node, is_cordoned=True)
        world.remove_foreign()
        there = (pod["metadata"]["name"] for pod in world.sandbox.list("pods") if pod["spec"].get("nodeName") in ("node-2", "node-3"))
        world.delete_member(gang, int(min(there).rpartition("-")[2]), grace=0)
        world.advance(30)
        world.judge.check()
        end(world)


def _add_storage(world: World, provisioner: str, *nodes: str) -> None:
    """Add a storage class that waits for nodes, and a free local volume on each of ``nodes``."""
    world.sandbox.create(waiting_class("fast", provisioner))
    for node in nodes:
        world.sandbox.create(local_volume(f"disk-{node}", "fast", node))
    world.advance(1)


def volumes_that_are_provisioned() -> None:
    """A write to a claim fails, another one loses its answer, and the scheduler is killed before the last volume is bound."""
    with quiet_world() as world:
        _add_storage(world, PROVISIONER)
        world.fault(Fault("patch", "persistentvolumeclaims", nth=2, times=1, status=503, retry_after=1))
        world.fault(Fault("patch", "persistentvolumeclaims", nth=3, times=1, drop=True, after=True))
        world.add(GangSpec("gang", "recreated", size=4, minimum=4, cpu=3, storage_class="fast"))
        world.advance(3)
        world.crash(1)
        world.advance(60)
        end(world)


def volumes_that_come_late() -> None:
    """A provisioner takes twenty seconds for each volume."""
    with quiet_world() as world:
        _add_storage(world, "disks.example.com")
        gang = GangSpec("gang", "recreated", size=2, minimum=2, cpu=3, storage_class="fast")
        world.add(gang)
        for name in gang.bare_names:
            world.advance(20)
            claim = world.sandbox.get("persistentvolumeclaims", f"data-{name}") or {}
            owner = {"namespace": "default", "name": f"data-{name}", "uid": claim["metadata"]["uid"]}
            spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": owner}
            made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-{name}"}}
            world.sandbox.create({**made, "spec": {**spec, "csi": {"driver": "disks.example.com", "volumeHandle": name}}})
        world.advance(20)
        end(world)


def local_volumes() -> None:
    """There are three free volumes for a gang of four; the last volume comes later."""
    with quiet_world() as world:
        nodes = sorted(world.judge.books.nodes)
        _add_storage(world, "kubernetes.io/no-provisioner", *nodes[:3])
        world.add(GangSpec("gang", "recreated", size=4, minimum=4, cpu=3, storage_class="fast"))
        world.advance(20)
        world.judge.check()
        last = world.sandbox.get("persistentvolumes", f"disk-{nodes[0]}") or {}
        metadata = {"name": "disk-late"}
        spec = {key: value for key, value in last["spec"].items() if key != "claimRef"}
        world.sandbox.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
        world.advance(40)
        end(world)


def parts_of_devices() -> None:
    """Two gangs request more than half of a GPU per pod, one requests a whole GPU: no two of these pods share a GPU."""
    with quiet_world(nodes=2, shares_gpus=True) as world:
        for number, gpus in enumerate((0, 0, 1)):
            percent = 0 if gpus else 60
            world.add(GangSpec(f"gang-{number}", "bare", size=1 + (number == 0), minimum=1, gpus=1, percent=percent))
            world.advance(4)
        world.add(GangSpec("late", size=2, minimum=2, gpus=1, percent=30))
        world.advance(20)
        end(world)


def parts_after_a_crash() -> None:
    """The scheduler restarts, and reads from the pods which GPUs they have."""
    with quiet_world(nodes=1, shares_gpus=True) as world:
        world.add(GangSpec("first", size=2, minimum=2, gpus=1, percent=60))
        world.advance(5)
        world.crash(1)
        world.add(GangSpec("second", size=2, minimum=2, gpus=1, percent=60))
        world.advance(20)
        world.add(GangSpec("third", size=2, minimum=2, gpus=1, percent=30))
        world.advance(20)
        end(world)


def role_lost() -> None:
    """The only member of a role with a minimum is lost for good, and the gang asks to be released then."""
    with quiet_world() as world:
        gang = GangSpec("gang", size=3, minimum=3, others=(Role("ps", 1),), least=1, gives_up=True)
        world.add(gang)
        world.advance(5)
        world.fill()
        world.delete_member(gang, [role_of(pod) for pod in world.judge.members(gang)].index("ps"), grace=0)
        world.fill()
        world.advance(90)
        end(world)
