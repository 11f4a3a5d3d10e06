# SPDX-License-Identifier: MIT
"""What the machine is: last-level-cache domains (chiplets), NUMA nodes and SMT siblings.

Idea: a CPU built of chiplets has several last-level caches (LLC), and each core reaches only its
own one quickly. Linux says under ``/sys`` which CPUs share which cache. Each CPU is asked for its
own LLC, which is its highest data or unified cache, and CPUs that give the same answer form a
domain. Where nothing can be learnt, all the CPUs concerned form one domain of unknown size, and a
note says why; an odd machine is never an error. ``FRONTGI_TOPOLOGY`` states what a virtual
machine hides.

Layout: plain frozen data. CPU sets are sorted tuples of CPU ids; ids are sparse on many machines
and are never used as indices, and a set of them is never taken to be a range.

Invariant: ``llc_domains`` partitions the CPUs that are both online and allowed, its parts are not
empty, and they are ordered by their first CPU. Nothing happens at import; :func:`pinned` leaves
every mask as it found it.

Source: FrontGI (arXiv 2610.34911), section 2.1 for LLC domains, listing 1 for the placement of
threads. The listing fills its mask from ``ID_start..ID_end``; here it is filled from a set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from frontgi_pyg.affinity import CpuSet, own_cpus
from frontgi_pyg.config import topology_override

GRAMMAR = (
    "expected 'llc:DOMAINSxCPUS[:SIZE]' (such as llc:16x8:16MiB) or one CPU list a domain, "
    "'CPUS[:SIZE];CPUS[:SIZE];...' (such as 0-7,16-23;8-15,24-31 or 0-7:16MiB;8-15:32MiB), where "
    "SIZE is a number with B, KiB, MiB or GiB, and a size after the last list alone holds for all"
)

# Linux builds for at most 8192 CPUs; an id beyond this bound is a damaged file or a slip.
_MAX_CPUS = 1 << 16
_LARGEST_CACHE_BYTES = 1 << 50


@dataclass(frozen=True)
class CacheDomain:
    """CPUs that share one last-level cache.

    Args:
        cpus (tuple[int, ...]): Their ids, sorted; those outside the allowed set are left out.
        level (int, optional): The cache's level, or :obj:`None` if unknown.
        size_bytes (int, optional): The size of the whole cache, also where only some of its CPUs
            are allowed, or :obj:`None` if unknown.
    """

    cpus: CpuSet
    level: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Topology:
    """A machine's caches and nodes, detected by :meth:`detect` or stated to :meth:`parse`.

    Args:
        llc_domains (tuple[CacheDomain, ...]): A partition of the CPUs that may be used.
        online_cpus (tuple[int, ...]): All online CPUs, also those that may not be used.
        numa_nodes (dict[int, tuple[int, ...]]): The usable CPUs of each NUMA node; empty for a
            node of memory only. Not to be modified.
        smt_siblings (tuple[tuple[int, ...], ...]): The usable CPUs of each core.
        notes (tuple[str, ...]): What was missing, inconsistent or assumed.
        forced (bool): Whether this was stated, not detected: its CPUs need not exist here.

    Example:
        >>> topology = Topology.parse("0-1,4:16MiB;2-3,5:16MiB")
        >>> topology.llc_domains[0]
        CacheDomain(cpus=(0, 1, 4), level=None, size_bytes=16777216)
        >>> topology.cpu_to_domain()[5]
        1
    """

    llc_domains: tuple[CacheDomain, ...]
    online_cpus: CpuSet
    numa_nodes: dict[int, CpuSet] = field(hash=False)
    smt_siblings: tuple[CpuSet, ...]
    notes: tuple[str, ...] = ()
    forced: bool = False

    @classmethod
    def detect(
        cls,
        sysfs_root: str | os.PathLike[str] = "/sys",
        allowed_cpus: Iterable[int] | None = None,
    ) -> Topology:
        """Reads the topology of this machine, or of the one captured under `sysfs_root`.

        For this machine, ``FRONTGI_TOPOLOGY`` is taken instead where it is set, as it stands and
        whatever `allowed_cpus` says.

        Args:
            sysfs_root (str or PathLike, optional): Where ``devices/system/cpu`` lies.
                (default: :obj:`"/sys"`)
            allowed_cpus (iterable of int, optional): The CPUs that may be used. By default, on
                this machine, those in the calling thread's affinity mask (inside :func:`pinned`:
                the mask from before). The kernel keeps that mask within the cgroup's cpuset, so
                it reflects both. By default, under another root, all that are online.

        Returns:
            Topology: What was found. Without any online CPU among `allowed_cpus` it has no
            domain.

        Raises:
            ValueError: If ``FRONTGI_TOPOLOGY`` cannot be read. Odd machines raise nothing.
        """
        live = Path(sysfs_root) == Path("/sys")
        if live and (override := topology_override()):
            return cls.parse(override)
        system = os.path.join(sysfs_root, "devices/system")
        notes: list[str] = []
        online = _online_cpus(f"{system}/cpu", notes)
        if allowed_cpus is not None:
            allowed = frozenset(map(int, allowed_cpus))
        else:
            allowed = own_cpus() if live or not online else online
        if not online:
            notes.append("no CPU is listed: the allowed ones are assumed to be online")
            online = allowed
        elif live and allowed_cpus is None and not allowed <= online:
            # The kernel's mask holds active CPUs only, so it is the files that are wrong.
            notes.append(f"CPUs {list_of_cpus(allowed - online)} are in use but not listed as online")
            online |= allowed
        cpus = sorted(online & allowed)
        if not cpus:
            notes.append(f"none of the allowed CPUs ({list_of_cpus(allowed)}) is online")
        return cls(
            llc_domains=_llc_domains(f"{system}/cpu", cpus, notes),
            online_cpus=tuple(sorted(online)),
            numa_nodes=_numa_nodes(f"{system}/node", cpus, notes),
            smt_siblings=_smt_siblings(f"{system}/cpu", cpus, notes),
            notes=tuple(notes),
        )

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Takes a topology from `text`, in the grammar of ``FRONTGI_TOPOLOGY``.

        ``llc:16x8:16MiB`` is 16 domains of 8 CPUs each, numbered from 0 in order, of 16 MiB each.
        ``0-7,16-23;8-15,24-31`` lists the CPUs of each domain. Each list may be followed by its
        size, as in ``0-7:16MiB;8-15:32MiB``; a size after the last list alone holds for all.

        Args:
            text (str): The topology, as above. Units are binary, ``16M`` is ``16MiB``.

        Returns:
            Topology: As stated, with one NUMA node and one thread a core.

        Raises:
            ValueError: If `text` does not follow the grammar; the message says where.
        """
        text = text.strip()
        domains = _parse_uniform(text) if text.startswith("llc:") else _parse_lists(text)
        cpus = tuple(sorted(cpu for domain in domains for cpu in domain.cpus))
        return cls(
            llc_domains=tuple(sorted(domains, key=lambda domain: domain.cpus)),
            online_cpus=cpus,
            numa_nodes={0: cpus},
            smt_siblings=tuple((cpu,) for cpu in cpus),
            notes=("stated, not detected: one NUMA node and one thread a core are assumed",),
            forced=True,
        )

    def cpu_to_domain(self) -> dict[int, int]:
        """Returns the index in :obj:`llc_domains` of each usable CPU's domain."""
        return {cpu: i for i, domain in enumerate(self.llc_domains) for cpu in domain.cpus}


# Reading /sys ####################################################################################


def _read(path: str) -> str:
    """The text of a file, or "" if there is none; some kernels write a NUL behind the newline."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            data = b"".join(iter(lambda: os.read(file, 1 << 16), b""))
        finally:
            os.close(file)
    except OSError:
        return ""
    return data.strip(b"\0 \t\r\n").partition(b"\0")[0].decode("ascii", "replace").strip()


def _cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list such as "0-1,3"; raises :class:`ValueError` if it is not one."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MAX_CPUS:
            raise ValueError(f"{part!r} is not a CPU or a range of CPUs below {_MAX_CPUS}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def _cpu_mask(text: str) -> frozenset[int]:
    """The CPUs of a mask such as "ff,00000003", 32 bits a word, the highest word first."""
    words = text.split(",")
    damaged = not all(re.fullmatch("[0-9a-fA-F]{1,8}", word) for word in words)
    if damaged or 32 * len(words) > _MAX_CPUS:
        raise ValueError(f"{text!r} is not a CPU mask")
    bits = bin(int("".join(word.zfill(8) for word in words), 16))[:1:-1]
    return frozenset(cpu for cpu, bit in enumerate(bits) if bit == "1")


def _read_cpus(list_path: str, mask_path: str = "") -> frozenset[int]:
    """The CPUs that a list, else a mask, names; none if neither can be read."""
    with suppress(ValueError):
        return _cpu_list(_read(list_path))
    with suppress(ValueError):
        return _cpu_mask(_read(mask_path)) if mask_path else frozenset()
    return frozenset()


def _numbered(folder: str, prefix: str) -> list[int]:
    """The numbers in the names of a folder's entries that are `prefix` and a number, sorted."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    pattern = re.compile(re.escape(prefix) + "(0|[1-9][0-9]{0,8})")
    return sorted(int(match[1]) for name in names if (match := pattern.fullmatch(name)))


def list_of_cpus(cpus: Iterable[int]) -> str:
    """The inverse of :func:`_cpu_list`."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][-1] == cpu - 1:
            ranges[-1] = [ranges[-1][0], cpu]
        else:
            ranges.append([cpu])
    return ",".join("-".join(map(str, ends)) for ends in ranges) or "none"


def _online_cpus(folder: str, notes: list[str]) -> frozenset[int]:
    if online := _read_cpus(f"{folder}/online"):
        return online
    source, cpus = "present", _read_cpus(f"{folder}/present")
    if not cpus:
        source, cpus = "cpuN folders", frozenset(_numbered(folder, "cpu"))
    if not cpus:
        source, cpus = "possible", _read_cpus(f"{folder}/possible")
    if cpus:
        notes.append(f"cpu/online is missing or unreadable: taken from {source}")
    offline = _read_cpus(f"{folder}/offline")
    return frozenset(c for c in cpus - offline if _read(f"{folder}/cpu{c}/online") != "0")


def _own_llc(cache: str) -> tuple[int, int] | None:
    """The level and the index number of a CPU's highest data or unified cache."""
    unknown = -1
    levels: list[tuple[int, int]] = []
    for index in _numbered(cache, "index"):
        text = _read(f"{cache}/index{index}/level")
        if re.fullmatch("[1-9]", text):
            levels.append((int(text), index))
        else:
            unknown = index
    for level, index in sorted(levels, reverse=True):
        if _read(f"{cache}/index{index}/type").casefold() != "instruction":
            # Indices ascend with levels: one above this without a level may be the LLC instead.
            return (level, index) if index > unknown else None
    return None


class _Llc(NamedTuple):
    """What the first CPU of a domain says of its LLC, and the CPUs that say the same."""

    level: int
    entry: int
    shared_text: str
    cpus: list[int]


def _group_by_llc(folder: str, cpus: list[int]) -> tuple[dict[frozenset[int], _Llc], list[int]]:
    """Groups CPUs by what each says of its own LLC, so that groups cannot overlap.

    Returns the groups by the CPUs that share the LLC as said, and the CPUs in none.
    """
    usable = frozenset(cpus)
    groups: dict[frozenset[int], _Llc] = {}
    claims: dict[int, frozenset[int]] = {}
    silent: list[int] = []
    for cpu in cpus:
        cache = f"{folder}/cpu{cpu}/cache"
        if cpu in claims:
            # A file that reads as the sibling's does settles it, without a search of its own.
            group = groups[claims[cpu]]
            text = _read(f"{cache}/index{group.entry}/shared_cpu_list")
            if text and text == group.shared_text:
                group.cpus.append(cpu)
                continue
        shared: frozenset[int] = frozenset()
        if found := _own_llc(cache):
            path = f"{cache}/index{found[1]}/shared_cpu_"
            shared = _read_cpus(path + "list", path + "map") & usable
        if found is None or cpu not in shared:
            silent.append(cpu)
        elif shared in groups:
            groups[shared].cpus.append(cpu)
        else:
            groups[shared] = _Llc(*found, _read(path + "list"), [cpu])
            claims.update((other, shared) for other in shared if other not in claims)
    for cpu in silent:
        if cpu in claims:  # it says nothing, so its sibling's word holds
            groups[claims[cpu]].cpus.append(cpu)
    return groups, [cpu for cpu in silent if cpu not in claims]


def _llc_domains(folder: str, cpus: list[int], notes: list[str]) -> tuple[CacheDomain, ...]:
    groups, silent = _group_by_llc(folder, cpus)
    domains = []
    for shared, llc in groups.items():
        listed = list_of_cpus(llc.cpus)
        if others := shared.difference(llc.cpus):
            notes.append(f"CPUs {list_of_cpus(others)} do not confirm to share the LLC of {listed}")
        sizes = (_read_size(f"{folder}/cpu{c}/cache/index{llc.entry}/size") for c in llc.cpus)
        size_bytes = next(filter(None, sizes), None)
        if size_bytes is None:
            notes.append(f"CPUs {listed}: the size of their LLC is unknown")
        domains.append(CacheDomain(tuple(sorted(llc.cpus)), llc.level, size_bytes))
    if silent:
        notes.append(f"CPUs {list_of_cpus(silent)}: no readable cache entry, one domain is assumed")
        domains.append(CacheDomain(tuple(silent)))
    return tuple(sorted(domains, key=lambda domain: domain.cpus))


def _read_size(path: str) -> int | None:
    with suppress(ValueError):
        return _size(_read(path))
    return None


def _numa_nodes(folder: str, cpus: list[int], notes: list[str]) -> dict[int, CpuSet]:
    left = set(cpus)
    nodes: dict[int, CpuSet] = {}
    for node in _numbered(folder, "node"):
        path = f"{folder}/node{node}/"
        nodes[node] = tuple(sorted(left & _read_cpus(path + "cpulist", path + "cpumap")))
        left.difference_update(nodes[node])
    if not nodes:
        notes.append("no NUMA node is listed: one is assumed")
        return {0: tuple(cpus)}
    if left:
        notes.append(f"CPUs {list_of_cpus(left)} are in no NUMA node")
    return nodes


def _smt_siblings(folder: str, cpus: list[int], notes: list[str]) -> tuple[CpuSet, ...]:
    usable = frozenset(cpus)
    cores: dict[frozenset[int], list[int]] = {}
    silent: list[int] = []
    for cpu in cpus:
        path = f"{folder}/cpu{cpu}/topology/"
        core = _read_cpus(path + "thread_siblings_list", path + "thread_siblings")
        if cpu not in core:
            core = _read_cpus(path + "core_cpus_list", path + "core_cpus")
        if cpu in core:
            cores.setdefault(core & usable, []).append(cpu)
        else:
            silent.append(cpu)
    claims: dict[int, frozenset[int]] = {}
    for core in cores:
        for cpu in core:
            claims.setdefault(cpu, core)
    for cpu in silent:  # it says nothing, so its sibling's word holds
        cores.setdefault(claims.get(cpu, frozenset([cpu])), []).append(cpu)
    if unnamed := [cpu for cpu in silent if cpu not in claims]:
        notes.append(f"CPUs {list_of_cpus(unnamed)}: no SMT siblings are listed, none are assumed")
    return tuple(sorted(tuple(sorted(core)) for core in cores.values()))


# The grammar of FRONTGI_TOPOLOGY #################################################################


def _size(text: str) -> int:
    """Bytes of a size such as "32768K" or "27.5MiB"; raises :class:`ValueError` if not one."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]+)?)\s*(?:([KMG])(?:i?B)?|B)?\s*", text, re.I)
    unit = 1024 ** " KMG".index((match[2] or " ").upper()) if match else 0
    size_bytes = int(float(match[1]) * unit) if match else 0
    if not 0 < size_bytes <= _LARGEST_CACHE_BYTES:
        raise ValueError(f"{text!r} is not a size of a cache")
    return size_bytes


def _rejected(text: str, at: int, why: str) -> ValueError:
    return ValueError(f"topology: {GRAMMAR} (got {text!r}; at character {at}: {why})")


def _parse_size(text: str, at: int, size: str) -> int:
    try:
        return _size(size)
    except ValueError as error:
        raise _rejected(text, at, str(error)) from None


def _parse_uniform(text: str) -> list[CacheDomain]:
    at = len("llc:")
    shape, colon, size = text[at:].partition(":")
    match = re.fullmatch(r"\s*([0-9]{1,5})\s*x\s*([0-9]{1,5})\s*", shape)
    domains, width = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < domains * width <= _MAX_CPUS:
        raise _rejected(text, at, f"{shape!r} is not DOMAINSxCPUS with 1 to {_MAX_CPUS} CPUs")
    size_bytes = _parse_size(text, at + len(shape) + 1, size) if colon else None
    starts = range(0, domains * width, width)
    return [CacheDomain(tuple(range(i, i + width)), None, size_bytes) for i in starts]


def _parse_lists(text: str) -> list[CacheDomain]:
    at = 0
    sets: list[CpuSet] = []
    sizes: list[int | None] = []
    seen: set[int] = set()
    for piece in text.split(";"):
        listed, colon, given = piece.partition(":")
        try:
            cpus = _cpu_list(listed)
        except ValueError as error:
            raise _rejected(text, at, str(error)) from None
        if twice := seen & cpus:
            raise _rejected(text, at, f"CPUs {list_of_cpus(twice)} are in two domains")
        seen |= cpus
        sets.append(tuple(sorted(cpus)))
        sizes.append(_parse_size(text, at + len(listed) + 1, given) if colon else None)
        at += len(piece) + 1
    if not any(sizes[:-1]):
        sizes = sizes[-1:] * len(sets)
    elif None in sizes:
        raise _rejected(text, 0, "some domains have a size and some have none")
    return [CacheDomain(cpus, None, size) for cpus, size in zip(sets, sizes, strict=True)]
