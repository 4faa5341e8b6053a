"""Tests that the keys of all gangs stay in order while gangs come and go."""

import random

from allaboard.gangs.podgroup import PodGroup
from allaboard.model.gang import GangKey
from allaboard.sight.keys import Keys
from tests.unit.scheduling.schedulers import World


async def test_keys_and_namespaces_are_those_of_the_registry_after_each_change() -> None:
    chance = random.Random(1)
    async with World(cpus=8) as world:
        world.add("before", 2, namespace="z")
        keys, present = Keys(world.registry), [GangKey("z", "before")]
        for number in range(60):
            if present and chance.random() < 0.45:
                world.remove(present.pop(chance.randrange(len(present))))
            else:
                present.append(world.add(f"g{chance.randrange(1000)}-{number}", 2, namespace=chance.choice("abc")))
            assert keys.in_order() == sorted(world.registry.known())
            assert keys.namespaces() == sorted({key.namespace for key in world.registry.known()})
        world.registry.observe_group(PodGroup(GangKey("d", "empty"), "uid", 7, 2, 60, 0.0, {}))
        assert "d" in keys.namespaces()
        world.registry.forget_group(GangKey("d", "empty"), 7)
        assert "d" not in keys.namespaces()
