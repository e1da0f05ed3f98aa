# SPDX-License-Identifier: Apache-2.0
"""The local leg of a group: another c10d backend, NCCL for instance, that carries collectives within hosts.

All ranks of a group decide by the same rule. All have the same facts: the setting, the hosts of all ranks, and
what each rank has said in the store. So either all use the leg, or none does. csrc/c10d/local_leg.h is the leg.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from braid import _settings
from braid._notices import tell
from braid._torch import leg_backends, leg_costs, on_device
from braid._torch.backend_name import BACKEND_NAME

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions

VARIABLE = "BRAID_LOCAL_LEG"


@dataclass(frozen=True)
class Wanted:
    """What BRAID_LOCAL_LEG asks for.

    Attributes:
        backend: the name of a backend that torch knows.
        devices: the types of devices whose tensors it shall carry.
    """

    backend: str
    devices: tuple[str, ...]


def wanted(text: str) -> Wanted | None:
    """Return what a value of BRAID_LOCAL_LEG asks for on this machine; None for no leg.

    Example:
        >>> wanted("cpu:gloo")
        Wanted(backend='gloo', devices=('cpu',))
    """
    import torch
    from torch.distributed import Backend

    device, _, name = text.strip().lower().rpartition(":")
    if name in ("", "off"):
        return None
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator()
        name = Backend.default_device_backend_map.get(accelerator.type, "") if accelerator else ""
        return Wanted(name, (accelerator.type,)) if accelerator and name not in ("", BACKEND_NAME) else None
    if device:
        return Wanted(name, (device,))
    # Within a host braid has shared memory for CPU tensors, so a name alone is for accelerators.
    return Wanted(name, tuple(each for each in Backend.backend_capability.get(name, ()) if each != "cpu"))


def in_words(device: str) -> str:
    """Return what carries tensors of a type of device within a host, where several ranks share one.

    Example:
        >>> in_words("cuda")
        'no local leg (BRAID_LOCAL_LEG is off)'
    """
    text = _settings.value_of(VARIABLE)
    asked = wanted(text)
    if asked is None and text.lower() != "auto":
        return f"no local leg ({VARIABLE} is off)"
    if asked is None or device not in asked.devices:
        return f"no local leg ({VARIABLE}={text} has none for {device})"
    if why := _why_unavailable(asked):
        return f"no local leg ({VARIABLE}={text}: {why})"
    condition = ", if each rank sets its device before a group is made" if text.strip().lower() == "auto" else ""
    return f"{asked.backend} carries them within hosts{condition} ({VARIABLE}={text})"


def why_flat(hosts: Sequence[int]) -> str:
    """Return why ranks on these hosts cannot use a leg; "" if they can.

    Args:
        hosts: the number of each rank's host, by rank.

    Example:
        >>> why_flat([0, 0, 1])
        'hosts have 1 to 2 ranks; give every host as many'
    """
    counts = Counter(hosts).values()
    if max(counts) == 1:
        return "no two ranks share a host"
    if min(counts) != max(counts):
        return f"hosts have {min(counts)} to {max(counts)} ranks; give every host as many"
    return ""


def join(backend: Any, options: "_DistributedBackendOptions", members: Sequence[int], adapter: Any) -> str:
    """Give a new group its local leg, if BRAID_LOCAL_LEG asks for one and all ranks can have it.

    Every rank of the group must call this. Rank 0 tells in one line why a leg that was asked for is not used.

    Args:
        backend: the group's backend.
        options: the group's store, rank, size and timeout, from torch.
        members: the global ranks of the group.
        adapter: the module that makes backends.

    Returns:
        A clause for the first line of the job, as "gloo carries cpu tensors within hosts"; "" without a leg.
    """
    text = _settings.value_of(VARIABLE)
    asked, is_auto = wanted(text), text.strip().lower() == "auto"
    if asked is None:
        return ""
    if options.group_size == 1:
        backend.say_why_no_leg("the group has one rank")
        return ""
    hosts = _hosts_of(backend.topology())
    if why := why_flat(hosts):
        # Groups of one rank per host are common, and nothing is lost there.
        if max(Counter(hosts).values()) > 1:
            _tell(options, why)
        backend.say_why_no_leg(why)
        return ""
    import torch.distributed as dist

    store = dist.PrefixStore("braid/leg", options.store)
    why = _first(store, "can", _why_unavailable(asked), options)
    if not why and is_auto:
        names = _said(store, "device", _name_of_device(asked.devices[0]), options)
        if pair := sharing(hosts, names):
            why = _why_shared(pair, names)
            _look_again(backend, options, asked.devices[0], pair, names[options.group_rank])
    if not why:
        local, within = None, None
        try:
            local = leg_backends.make_local(asked.backend, store, hosts, options, members, adapter)
            within = leg_costs.measured(local, asked.devices[0]) if is_auto else None
        except Exception as error:
            why = str(error) or type(error).__name__
        why = _first(store, "made", why, options)
    if why:
        _tell(options, why)
        backend.say_why_no_leg(why)
        return ""
    across = leg_backends.make_across(store, hosts, options, members, adapter)
    table: dict[str, Any] = {}
    if within is not None:
        measured, device = within, asked.devices[0]

        def costs() -> dict[str, Any]:
            return leg_costs.as_tuples(leg_costs.table(backend, across, measured, device))

        table, why = _of_rank_0(store, costs, options)
        if why:
            _tell(options, why)
            backend.say_why_no_leg(why)
            return ""
    coder = on_device.LegCoder(across)
    backend.use_local_leg(local, across, asked.backend, asked.devices, hosts, table, coder)
    where = " where that is faster" if within else ""
    return f"{asked.backend} carries {' and '.join(asked.devices)} tensors within hosts{where}"


@dataclass(frozen=True)
class _Derived:
    """What join() reads of torch's options, for a group that torch does not make by options."""

    store: Any
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str


def watch_derived(adapter: Any) -> None:
    """Give legs to groups that are split off, merged or shrunk, too. torch makes these without Python."""

    def join_derived(
        backend: Any, store: Any, rank: int, size: int, timeout: timedelta, group_id: str, members: list[int]
    ) -> None:
        options: Any = _Derived(store, rank, size, timeout, group_id)
        join(backend, options, members or list(range(size)), adapter)

    adapter.on_derived(join_derived)


def _hosts_of(topology: str) -> list[int]:
    """Return the hosts of all ranks, numbered in the order in which ranks name them."""
    numbers = topology.splitlines()[0].partition("hosts=")[2].split(" ")[0].split(",")
    order = list(dict.fromkeys(numbers))
    return [order.index(each) for each in numbers]


def _tell(options: "_DistributedBackendOptions", why: str) -> None:
    if options.group_rank == 0:
        _tell_one(options.group_size, why)


def _tell_one(ranks: int, why: str) -> None:
    tell(f"{VARIABLE}={_settings.value_of(VARIABLE)} is not used in a group of {ranks} ranks: {why}")


def sharing(hosts: Sequence[int], devices: Sequence[str]) -> tuple[int, int] | None:
    """Return the first two ranks of a host that share a device, the lower one first; None if no two do.

    Args:
        hosts: the number of each rank's host, by rank.
        devices: what names each rank's device on its host, by rank.

    Example:
        >>> sharing([0, 0, 1, 1], ["a", "b", "a", "a"])
        (2, 3)
    """
    first: dict[tuple[int, str], int] = {}
    for rank, place in enumerate(zip(hosts, devices, strict=True)):
        other = first.setdefault(place, rank)
        if other != rank:
            return other, rank
    return None


def _why_shared(pair: tuple[int, int], devices: Sequence[str]) -> str:
    shared = f"ranks {pair[0]} and {pair[1]} share device {devices[pair[1]]}"
    return f"{shared}; set the device of each rank before the group is made"


def _look_again(
    backend: Any, options: "_DistributedBackendOptions", device: str, pair: tuple[int, int], then: str
) -> None:
    """Let the group's first operation on a device see whether the rank has set its device too late for a leg.

    Every rank that has gives the reason in explain(). The second rank of the pair also tells it.

    Args:
        backend: the group's backend.
        options: of the group.
        device: the type of the devices.
        pair: the ranks that shared a device when the group was made.
        then: what named this rank's device at that time.
    """

    def look(index: int) -> None:
        now = _name_of_device(device, index)
        if now == then:
            return
        why = (
            f"rank {options.group_rank} uses device {now}, but had {then} when the group was made; "
            f"call torch.{device}.set_device() before init_process_group()"
        )
        backend.say_why_no_leg(why)
        if options.group_rank == pair[1]:
            _tell_one(options.group_size, why)

    backend.at_first_device_call(look)


def _name_of_device(device: str, index: int | None = None) -> str:
    """Return what names a device on its host: the one of this index, or this process's current one."""
    import torch

    if index is None:
        index = torch.accelerator.current_device_index()
    try:
        found = getattr(torch, device).get_device_properties(index).uuid
    except (AttributeError, RuntimeError):
        found = ""
    return str(found or index)


def _of_rank_0(
    store: Any, make: Callable[[], dict[str, Any]], options: "_DistributedBackendOptions"
) -> tuple[dict[str, Any], str]:
    """Return on all ranks what rank 0 makes, or why it cannot. All must decide alike, but no two measure alike."""
    if options.group_rank == 0:
        try:
            store.set("table", json.dumps([make(), ""]))
        except Exception as error:
            store.set("table", json.dumps([{}, f"rank 0: {error}"]))
    store.wait(["table"], 2 * options.timeout)
    table, why = json.loads(store.get("table"))
    return table, why


def _first(store: Any, question: str, answer: str, options: "_DistributedBackendOptions") -> str:
    """Tell all ranks this rank's answer, and return the first answer of a rank that is not empty; "" for none."""
    answers = _said(store, question, answer, options)
    return next((f"rank {rank}: {said}" for rank, said in enumerate(answers) if said), "")


def _said(store: Any, question: str, answer: str, options: "_DistributedBackendOptions") -> list[str]:
    """Tell all ranks this rank's answer, and return those of all."""
    store.set(f"{question}/{options.group_rank}", f"={answer}")  # no store takes an empty value
    keys = [f"{question}/{rank}" for rank in range(options.group_size)]
    # A rank may first wait for another one until the timeout.
    store.wait(keys, 2 * options.timeout)
    return [said.decode()[1:] for said in store.multi_get(keys)]


def _why_unavailable(asked: Wanted) -> str:
    import torch
    import torch.distributed as dist

    known = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "xccl": dist.is_xccl_available}
    if asked.backend in known and not known[asked.backend]():
        return f"this torch has no {asked.backend}"
    if asked.backend not in known and asked.backend.upper() not in dist.Backend._plugins:
        return f"torch cannot make the backend {asked.backend} for braid"
    if not asked.devices:
        return f"{asked.backend} carries no accelerator's tensors; name a device, as in cpu:{asked.backend}"
    for device in asked.devices:
        if device not in dist.Backend.backend_capability.get(asked.backend, ()):
            return f"{asked.backend} carries no {device} tensors"
    if "cpu" not in asked.devices and not torch.accelerator.is_available():
        return "there is no accelerator"
    return ""
