# SPDX-License-Identifier: MIT
"""Topology: captures of real machines, odd machines built by hand, the grammar, and placement."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from frontgi_pyg.pinning import pinned
from frontgi_pyg.topology import GRAMMAR, CacheDomain, Topology

CAPTURES = (
    "captured/epyc-7451-2s",
    "captured/gb10-asymmetric-l3",
    "captured/haswell-2s-offline-cpu0",
    "captured/intel-2s-snc2-40c",
    "captured/kunpeng920-2s",
    "captured/milkv-pioneer-nocache",
    "captured/opteron6134-4s-cgroup2",
    "captured/ryzen9-7950x",
    "rebuilt/epyc-7763-2s",
)
MIB = 1 << 20
needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="no sched_setaffinity on this platform"
)


class Machine:
    """Writes a ``/sys`` tree, file by file."""

    def __init__(self, root: Path, online: str | None = None) -> None:
        self.root = root
        (root / "devices/system/cpu").mkdir(parents=True)
        if online is not None:
            self.write("cpu/online", online)

    def write(self, name: str, content: str | bytes) -> None:
        path = self.root / "devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() + b"\n" if isinstance(content, str) else content)

    def remove(self, name: str) -> None:
        path = self.root / "devices/system" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def cache(self, cpu: int, index: int, level: int, shared: str, size: str) -> None:
        """One cache entry; index 0 is a data cache, 1 holds instructions, others are unified."""
        kind = ("Data", "Instruction")[index] if index < 2 else "Unified"
        for name, content in (
            ("level", str(level)),
            ("type", kind),
            ("shared_cpu_list", shared),
            ("size", size),
        ):
            self.write(f"cpu/cpu{cpu}/cache/index{index}/{name}", content)

    def l3(self, groups: dict[str, list[int]], size: str = "16384K") -> Machine:
        """L1 and L2 of its own for each CPU, and an L3 for each group."""
        for shared, cpus in groups.items():
            for cpu in cpus:
                self.cache(cpu, 0, 1, str(cpu), "32K")
                self.cache(cpu, 1, 1, str(cpu), "32K")
                self.cache(cpu, 2, 2, str(cpu), "1024K")
                self.cache(cpu, 3, 3, shared, size)
        return self

    def detect(self, allowed: Any = None) -> Topology:
        topology = Topology.detect(self.root, allowed)
        usable = set(topology.online_cpus) & set(topology.online_cpus if allowed is None else allowed)
        check_partition(topology, usable)
        return topology


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    return lambda online=None: Machine(tmp_path / "sys", online)


def check_partition(topology: Topology, usable: set[int]) -> None:
    parts = [domain.cpus for domain in topology.llc_domains]
    assert all(parts)
    assert parts == sorted(parts)
    assert all(list(part) == sorted(set(part)) for part in parts)
    assert sorted(cpu for part in parts for cpu in part) == sorted(usable)
    assert sorted(cpu for core in topology.smt_siblings for cpu in core) == sorted(usable)
    in_nodes = [cpu for cpus in topology.numa_nodes.values() for cpu in cpus]
    assert len(in_nodes) == len(set(in_nodes))
    assert usable.issuperset(in_nodes)
    assert topology.cpu_to_domain() == {c: i for i, part in enumerate(parts) for c in part}


def cpus_of(topology: Topology) -> list[list[int]]:
    return [list(domain.cpus) for domain in topology.llc_domains]


# Captures ########################################################################################


@pytest.mark.parametrize("name", CAPTURES)
def test_capture(name: str, shared: Path, tmp_path: Path) -> None:
    archive = shared / "data/topologies" / f"{name}.tar.gz"
    if not archive.exists():
        pytest.skip(f"{archive.name} is not there")
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(tmp_path, filter="data")
        else:
            tar.extractall(tmp_path)
    expected = json.loads(archive.with_name(f"{Path(name).name}.expected.json").read_text())["expected"]

    topology = Topology.detect(tmp_path / "sys")
    check_partition(topology, set(expected["online_cpus"]))
    assert not topology.forced
    assert list(topology.online_cpus) == expected["online_cpus"]
    assert list(map(list, topology.smt_siblings)) == expected["smt_siblings"]
    nodes = {str(node): list(cpus) for node, cpus in topology.numa_nodes.items()}
    assert nodes == expected["numa_node_cpus"]
    assert len(nodes) == expected["num_numa_nodes"]

    def as_expected(domains: tuple[CacheDomain, ...]) -> list[dict[str, Any]]:
        return [{"llc_level": d.level, "cpus": list(d.cpus), "size_bytes": d.size_bytes} for d in domains]

    without = tuple(expected["cpus_without_cache"])
    known = tuple(d for d in topology.llc_domains if d.cpus != without)
    assert as_expected(known) == expected["llc_domains"]
    if without:
        assert CacheDomain(without) in topology.llc_domains
        assert any("no readable cache entry" in note for note in topology.notes)
    if "allowed_cpus" in expected:
        within = Topology.detect(tmp_path / "sys", expected["allowed_cpus"])
        check_partition(within, set(expected["allowed_cpus"]))
        assert as_expected(within.llc_domains) == expected["llc_domains_within_allowed"]
        assert list(within.online_cpus) == expected["online_cpus"]


# Odd machines ####################################################################################


def test_llcs_interleave_differ_in_size_and_are_cut(machine: Callable[..., Machine]) -> None:
    m = machine("0-7").l3({"0-1,4-5": [0, 1, 4, 5]}, "32768K").l3({"2-3,6-7": [2, 3, 6, 7]}, "96M")
    m.write("node/node0/cpulist", "0-7")
    for cpu in range(8):
        m.write(f"cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}")
    topology = m.detect()
    assert topology.llc_domains == (
        CacheDomain((0, 1, 4, 5), 3, 32 * MIB),
        CacheDomain((2, 3, 6, 7), 3, 96 * MIB),
    )
    assert topology.smt_siblings == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert topology.notes == ()
    assert hash(topology) == hash(m.detect())

    within = m.detect({1, 2, 3, 99})
    assert within.llc_domains == (CacheDomain((1,), 3, 32 * MIB), CacheDomain((2, 3), 3, 96 * MIB))
    assert within.numa_nodes == {0: (1, 2, 3)}
    assert within.smt_siblings == ((1,), (2,), (3,))
    assert Topology.detect(str(m.root), iter([1, 2, 3])) == within


def test_none_of_the_allowed_cpus_is_online(machine: Callable[..., Machine]) -> None:
    topology = machine("0-3").l3({"0-3": [0, 1, 2, 3]}).detect({8})
    assert topology.llc_domains == ()
    assert "none of the allowed CPUs (8) is online" in topology.notes


@pytest.mark.parametrize(
    ("size", "size_bytes"),
    [
        ("32768K", 32 * MIB),
        ("16M", 16 * MIB),
        ("36M", 36 * MIB),
        ("5118K", 5240832),
        ("1G", 1024 * MIB),
        ("65536", 65536),
        ("0K", None),
        ("", None),
        ("big", None),
        ("-1K", None),
    ],
)
def test_sizes(machine: Callable[..., Machine], size: str, size_bytes: int | None) -> None:
    topology = machine("0-1").l3({"0-1": [0, 1]}, size).detect()
    assert topology.llc_domains == (CacheDomain((0, 1), 3, size_bytes),)
    assert any("size" in note for note in topology.notes) == (size_bytes is None)


def test_size_is_taken_from_a_sibling(machine: Callable[..., Machine]) -> None:
    m = machine("0-1").l3({"0-1": [0, 1]})
    m.write("cpu/cpu0/cache/index3/size", "?")
    assert m.detect().llc_domains == (CacheDomain((0, 1), 3, 16 * MIB),)


@pytest.mark.parametrize("text", [b"0,2\n", b"0-0,2-2\n\0", b"\x000,2", b" 0, 2 \n", b"0,2\0junk"])
def test_lists_and_nul_bytes(machine: Callable[..., Machine], text: bytes) -> None:
    m = machine().l3({"0,2": [0, 2]})
    m.write("cpu/online", text)
    m.write("cpu/cpu0/cache/index3/shared_cpu_list", text)
    m.write("cpu/cpu2/cache/index3/level", b"3\n\0")
    m.write("cpu/cpu2/cache/index3/type", b"Unified\n\0")
    m.write("cpu/cpu2/cache/index3/size", b"16384K\n\0")
    topology = m.detect()
    assert topology.llc_domains == (CacheDomain((0, 2), 3, 16 * MIB),)
    assert not any("cpu/online" in note for note in topology.notes)


def test_sparse_ids_and_offline_members(machine: Callable[..., Machine]) -> None:
    m = machine("15,21-22,26").l3({"0-15,21": [15, 21], "16-20,22-31": [22, 26]})
    topology = m.detect()
    assert cpus_of(topology) == [[15, 21], [22, 26]]
    assert not any("do not confirm" in note for note in topology.notes)


def test_caches_of_offline_cpus_are_not_read(machine: Callable[..., Machine]) -> None:
    m = machine("1").l3({"0": [0], "1": [1]})
    assert m.detect().llc_domains == (CacheDomain((1,), 3, 16 * MIB),)


def test_no_l3_on_arm(machine: Callable[..., Machine]) -> None:
    m = machine("0-3")
    for cpu in range(4):
        m.cache(cpu, 0, 1, str(cpu), "32K")
        m.cache(cpu, 1, 1, str(cpu), "48K")
        m.cache(cpu, 2, 2, "0-1" if cpu < 2 else "2-3", "1024K")
    assert m.detect().llc_domains == (CacheDomain((0, 1), 2, MIB), CacheDomain((2, 3), 2, MIB))


def test_an_instruction_cache_is_never_the_llc(machine: Callable[..., Machine]) -> None:
    m = machine("0")
    m.cache(0, 0, 1, "0", "48K")
    m.cache(0, 1, 1, "0", "64K")
    assert m.detect().llc_domains == (CacheDomain((0,), 1, 48 << 10),)


def test_hybrid_part_with_cores_outside_the_l3(machine: Callable[..., Machine]) -> None:
    m = machine("0-5").l3({"0-3": [0, 1, 2, 3]}, "24576K")
    for cpu in (4, 5):
        m.cache(cpu, 0, 1, str(cpu), "32K")
        m.cache(cpu, 2, 2, "4-5", "2048K")
    assert m.detect().llc_domains == (
        CacheDomain((0, 1, 2, 3), 3, 24 * MIB),
        CacheDomain((4, 5), 2, 2 * MIB),
    )


def test_an_l4_counts_and_index_order_does_not(machine: Callable[..., Machine]) -> None:
    m = machine("0-1").l3({"0": [0], "1": [1]})
    for cpu in (0, 1):
        m.cache(cpu, 4, 2, str(cpu), "2048K")
        m.cache(cpu, 10, 4, "0-1", "128M")
    assert m.detect().llc_domains == (CacheDomain((0, 1), 4, 128 * MIB),)


def test_more_than_a_thousand_cpus(machine: Callable[..., Machine]) -> None:
    m = machine("0-1151")
    for cpu in range(1152):
        first = cpu % 576 // 8 * 8
        shared = f"{first}-{first + 7},{first + 576}-{first + 583}"
        m.cache(cpu, 3, 3, shared, "16384K")
    topology = m.detect()
    assert len(topology.llc_domains) == 72
    assert topology.llc_domains[71].cpus == (*range(568, 576), *range(1144, 1152))


def test_a_silent_cpu_is_of_the_core_that_its_sibling_names(machine: Callable[..., Machine]) -> None:
    m = machine("0-3")
    m.write("cpu/cpu2/topology/thread_siblings_list", "0,2")
    topology = m.detect()
    assert topology.smt_siblings == ((0, 2), (1,), (3,))
    assert sum("1,3: no SMT siblings" in note for note in topology.notes) == 1


def test_maps_where_lists_are_missing(machine: Callable[..., Machine]) -> None:
    m = machine("0,33-35")
    for cpu in (0, 33, 34, 35):
        m.cache(cpu, 3, 3, "garbled", "16384K")
        m.write(
            f"cpu/cpu{cpu}/cache/index3/shared_cpu_map",
            "00000002,00000001" if cpu < 34 else "c,00000000",
        )
        m.remove(f"cpu/cpu{cpu}/cache/index3/shared_cpu_list")
        m.write(f"cpu/cpu{cpu}/topology/core_cpus", "2,1" if cpu < 34 else f"{1 << cpu - 32:x},0")
    m.write("node/node0/cpumap", "0000000f,ffffffff")
    topology = m.detect()
    assert cpus_of(topology) == [[0, 33], [34, 35]]
    assert topology.smt_siblings == ((0, 33), (34,), (35,))
    assert topology.numa_nodes == {0: (0, 33, 34, 35)}
    assert topology.notes == ()


@pytest.mark.parametrize("garbage", [b"", b"\0\0", b"a-b\n", b"3-0\n", b"0-99999999\n", b"\xff\xfe", b"0-", b"-1"])
def test_online_is_garbled_or_missing(machine: Callable[..., Machine], garbage: bytes) -> None:
    m = machine().l3({"0-3": [0, 1, 2, 3]})
    m.write("cpu/online", garbage)
    m.write("cpu/present", "0-3")
    m.write("cpu/possible", "0-191")
    m.write("cpu/cpu2/online", "0")
    topology = m.detect()
    assert cpus_of(topology) == [[0, 1, 3]]
    assert any("cpu/online" in note and "present" in note for note in topology.notes)
    m.remove("cpu/online")
    m.write("cpu/offline", "3,4-191")
    assert cpus_of(m.detect()) == [[0, 1]]
    m.remove("cpu/present")
    assert cpus_of(m.detect()) == [[0, 1]]


def test_only_possible_is_listed(machine: Callable[..., Machine]) -> None:
    m = machine()
    m.write("cpu/possible", "0-3")
    topology = m.detect()
    assert topology.llc_domains == (CacheDomain((0, 1, 2, 3)),)
    assert any("possible" in note for note in topology.notes)
    assert topology.numa_nodes == {0: (0, 1, 2, 3)}
    assert topology.smt_siblings == ((0,), (1,), (2,), (3,))


def test_some_cpus_without_cache_entries(machine: Callable[..., Machine]) -> None:
    topology = machine("0-6").l3({"2-3": [2, 3]}).detect()
    assert topology.llc_domains == (CacheDomain((0, 1, 4, 5, 6)), CacheDomain((2, 3), 3, 16 * MIB))
    assert any("CPUs 0-1,4-6: no readable cache entry" in note for note in topology.notes)


@pytest.mark.parametrize("cpu", [0, 1, 3])
@pytest.mark.parametrize("name", ["", "/index3", "/index3/level", "/index3/shared_cpu_list"])
def test_one_cpu_is_unreadable(machine: Callable[..., Machine], cpu: int, name: str) -> None:
    m = machine("0-3").l3({"0-3": [0, 1, 2, 3]})
    m.remove(f"cpu/cpu{cpu}/cache{name}")
    if name == "/index3":
        # Its L2 is what it has then: a domain of its own, and the others' claim is noted.
        topology = m.detect()
        assert sorted(map(len, cpus_of(topology))) == [1, 3]
        assert any("do not confirm" in note for note in topology.notes)
    else:
        assert m.detect().llc_domains == (CacheDomain((0, 1, 2, 3), 3, 16 * MIB),)
    if name.endswith(("level", "list")):
        m.write(f"cpu/cpu{cpu}/cache{name}", b"\xf0\x00?")
        assert m.detect().llc_domains == (CacheDomain((0, 1, 2, 3), 3, 16 * MIB),)


@pytest.mark.parametrize("name", ["level", "shared_cpu_list"])
def test_the_llc_is_unreadable_everywhere(machine: Callable[..., Machine], name: str) -> None:
    m = machine("0-3").l3({"0-3": [0, 1, 2, 3]})
    for cpu in range(4):
        m.write(f"cpu/cpu{cpu}/cache/index3/{name}", "?")
    topology = m.detect()
    assert topology.llc_domains == (CacheDomain((0, 1, 2, 3)),)
    assert any("no readable cache entry" in note for note in topology.notes)


def test_an_unreadable_type_or_directory_in_place_of_a_file(
    machine: Callable[..., Machine],
) -> None:
    m = machine("0-1").l3({"0-1": [0, 1]})
    m.remove("cpu/cpu0/cache/index3/type")
    m.write("cpu/cpu0/cache/indexer/level", "9")
    m.write("cpu/cpufreq/boost", "1")
    m.remove("cpu/cpu1/cache/index3/shared_cpu_list")
    m.write("cpu/cpu1/cache/index3/shared_cpu_list/file", "0")
    assert m.detect().llc_domains == (CacheDomain((0, 1), 3, 16 * MIB),)


def test_siblings_that_disagree(machine: Callable[..., Machine]) -> None:
    topology = machine("0-2").l3({"0-1": [0], "1-2": [1, 2]}).detect()
    assert cpus_of(topology) == [[0], [1, 2]]
    assert any("CPUs 1 do not confirm" in note for note in topology.notes)


def test_a_list_without_its_own_cpu_is_no_word(machine: Callable[..., Machine]) -> None:
    topology = machine("0-2").l3({"1-2": [0, 1, 2]}).detect()
    assert topology.llc_domains == (CacheDomain((0,)), CacheDomain((1, 2), 3, 16 * MIB))


def test_an_llc_over_two_nodes_and_a_node_without_cpus(machine: Callable[..., Machine]) -> None:
    m = machine("0-3").l3({"0-3": [0, 1, 2, 3]})
    m.write("node/node0/cpulist", "0,2")
    m.write("node/node3/cpulist", "1,2-3")
    m.write("node/node10/cpulist", b"\n")
    topology = m.detect()
    assert cpus_of(topology) == [[0, 1, 2, 3]]
    assert topology.numa_nodes == {0: (0, 2), 3: (1, 3), 10: ()}


def test_cpus_in_no_node(machine: Callable[..., Machine]) -> None:
    m = machine("0-3")
    m.write("node/node1/cpulist", "0-2")
    topology = m.detect()
    assert topology.numa_nodes == {1: (0, 1, 2)}
    assert any("CPUs 3 are in no NUMA node" in note for note in topology.notes)


@pytest.mark.parametrize("exists", [True, False])
def test_no_sysfs(tmp_path: Path, exists: bool) -> None:
    root = tmp_path if exists else tmp_path / "absent"
    topology = Topology.detect(str(root))
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    assert topology.llc_domains == (CacheDomain(tuple(sorted(own))),)
    assert any("no CPU is listed" in note for note in topology.notes)
    assert Topology.detect(root, {5, 9}).llc_domains == (CacheDomain((5, 9)),)


def test_no_affinity_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert Topology.detect(tmp_path).llc_domains == (CacheDomain((0, 1, 2, 3, 4, 5)),)
    with pinned() as placed:
        assert placed == {}


@st.composite
def odd_files(draw: st.DrawFn) -> tuple[dict[str, bytes], set[int] | None]:
    """Trees of up to eight CPUs where any file may be missing, damaged or contradict another."""
    lists = st.sets(st.integers(0, 9)).map(lambda s: ",".join(map(str, sorted(s))).encode())
    damage = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"0-7", b"0-3\n\0"]))
    files = {"cpu/online": draw(st.one_of(damage, lists)), "cpu/present": draw(damage)}
    for cpu in draw(st.sets(st.integers(0, 7))):
        for index in range(draw(st.integers(0, 2))):
            path = f"cpu/cpu{cpu}/cache/index{index}/"
            files[path + "level"] = draw(st.one_of(st.sampled_from([b"2", b"3\n"]), damage))
            files[path + "type"] = draw(st.sampled_from([b"Unified", b"Instruction", b"", None]))
            files[path + "shared_cpu_list"] = draw(st.one_of(lists, damage))
            files[path + "shared_cpu_map"] = draw(st.one_of(st.just(b"ff"), damage))
        files[f"cpu/cpu{cpu}/topology/thread_siblings_list"] = draw(st.one_of(lists, damage))
    files["node/node0/cpulist"] = draw(st.one_of(lists, damage))
    files["node/node1/cpulist"] = draw(lists)
    allowed = draw(st.one_of(st.none(), st.sets(st.integers(0, 9))))
    return {name: text for name, text in files.items() if text is not None}, allowed


@settings(max_examples=150, deadline=None)
@given(odd_files())
def test_any_tree_gives_a_partition(
    tmp_path_factory: pytest.TempPathFactory, tree: tuple[dict[str, bytes], set[int] | None]
) -> None:
    files, allowed = tree
    m = Machine(tmp_path_factory.mktemp("machine") / "sys")
    for name, content in files.items():
        m.write(name, content)
    topology = m.detect(allowed)
    assert topology.online_cpus or allowed == set()
    shutil.rmtree(m.root)


# This machine ####################################################################################


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRONTGI_TOPOLOGY", raising=False)
    topology = Topology.detect()
    if hasattr(os, "sched_getaffinity"):
        check_partition(topology, os.sched_getaffinity(0))
    assert topology.llc_domains
    assert not topology.forced


@needs_affinity
def test_the_affinity_mask_narrows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRONTGI_TOPOLOGY", raising=False)
    mask = os.sched_getaffinity(0)
    last = max(mask)
    os.sched_setaffinity(0, {last})
    try:
        topology = Topology.detect()
    finally:
        os.sched_setaffinity(0, mask)
    assert cpus_of(topology) == [[last]]
    assert mask <= set(topology.online_cpus)


def test_the_mask_is_believed_before_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRONTGI_TOPOLOGY", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {15, 60021}, raising=False)
    topology = Topology.detect()
    check_partition(topology, {15, 60021})
    assert any("60021 are in use but not listed as online" in note for note in topology.notes)


def test_override_holds_for_this_machine_only(monkeypatch: pytest.MonkeyPatch, machine: Callable[..., Machine]) -> None:
    monkeypatch.setenv("FRONTGI_TOPOLOGY", "llc:16x8:16MiB")
    assert Topology.detect() == Topology.detect("/sys/", {0}) == Topology.parse("llc:16x8:16MiB")
    assert cpus_of(machine("0-1").l3({"0-1": [0, 1]}).detect()) == [[0, 1]]
    monkeypatch.setenv("FRONTGI_TOPOLOGY", "chiplets please")
    with pytest.raises(ValueError, match="topology: expected 'llc:DOMAINSxCPUS"):
        Topology.detect()
    monkeypatch.setenv("FRONTGI_TOPOLOGY", "")
    assert not Topology.detect().forced


# The grammar #####################################################################################


def test_parse_uniform() -> None:
    topology = Topology.parse(" llc:16x8:16MiB\n")
    check_partition(topology, set(range(128)))
    assert topology.forced
    assert topology.notes
    assert topology.llc_domains[15] == CacheDomain(tuple(range(120, 128)), None, 16 * MIB)
    assert Topology.parse("llc:2x1").llc_domains == (CacheDomain((0,)), CacheDomain((1,)))


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        ("0", [((0,), None)]),
        ("0,2;1,3", [((0, 2), None), ((1, 3), None)]),
        ("0-1,3 ; 2,4", [((0, 1, 3), None), ((2, 4), None)]),
        ("4-5;0-1", [((0, 1), None), ((4, 5), None)]),
        ("0-1:16MiB;2-3:32M", [((0, 1), 16 * MIB), ((2, 3), 32 * MIB)]),
        ("0-1;2-3:27.5MiB", [((0, 1), 28835840), ((2, 3), 28835840)]),
        ("0:1024;1:1 KiB", [((0,), 1024), ((1,), 1024)]),
        ("0:1gb", [((0,), 1024 * MIB)]),
    ],
)
def test_parse_lists(text: str, domains: list[tuple[tuple[int, ...], int | None]]) -> None:
    topology = Topology.parse(text)
    assert topology.llc_domains == tuple(CacheDomain(cpus, None, size) for cpus, size in domains)
    assert topology.forced


@pytest.mark.parametrize(
    ("text", "at", "got"),
    [
        ("", 0, "''"),
        ("garbage", 0, "garbage"),
        ("llc:", 4, "''"),
        ("llc:16", 4, "16"),
        ("llc:0x8:16MiB", 4, "0x8"),
        ("llc:99999x99999", 4, "99999x99999"),
        ("llc:2x-1", 4, "2x-1"),
        ("llc:16x8:", 9, "''"),
        ("llc:16x8:lots", 9, "lots"),
        ("llc:16x8:16MiB;0-3", 9, "16MiB;0-3"),
        ("16x8:16MiB", 0, "16x8"),
        ("0-7;8-x", 4, "8-x"),
        ("0-7;", 4, "''"),
        ("0-7;15-8", 4, "15-8"),
        ("0-7;8-15,3", 4, "CPUs 3 are in two domains"),
        ("0-99999", 0, "0-99999"),
        ("0-7:16MiB;8-15:0", 15, "0"),
        ("0-7:16XiB;8-15", 4, "16XiB"),
        ("0-7:16MiB;8-15", 0, "some domains have a size and some have none"),
    ],
)
def test_parse_errors_name_grammar_value_and_place(text: str, at: int, got: str) -> None:
    with pytest.raises(ValueError, match="topology: expected") as error:
        Topology.parse(text)
    message = str(error.value)
    assert GRAMMAR in message
    assert f"got {text!r}; at character {at}: " in message
    assert got in message.partition(f"at character {at}: ")[2]


# Placement #######################################################################################


def masks() -> dict[int, set[int]]:
    found = {}
    for tid in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):
            found[tid] = os.sched_getaffinity(tid)
    return found


def check_restored(before: dict[int, set[int]]) -> None:
    """Threads of earlier tests' pools may end at any time; all others have their masks."""
    after = masks()
    assert threading.get_native_id() in after
    assert after == {tid: before.get(tid) for tid in after}


@pytest.fixture
def two() -> Iterator[tuple[int, int]]:
    """Two CPUs that this process may use, with a torch pool of two threads that has run."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no sched_setaffinity on this platform")
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("only one CPU may be used")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1 << 20).add_(1)
    mask = os.sched_getaffinity(0)
    yield cpus[0], cpus[1]
    assert all(after == mask for after in masks().values())
    torch.set_num_threads(threads)


def test_pinned_places_the_caller_and_its_worker(two: tuple[int, int]) -> None:
    a, b = two
    before = masks()
    with pinned(Topology.parse(f"{a};{b}")) as placed:
        torch.ones(1 << 20).add_(1)
        inside = masks()
        assert inside[threading.get_native_id()] == {a}
        assert list(placed.values()) == [(a,), (b,)]
        assert all(inside[tid] == set(cpus) for tid, cpus in placed.items())
        assert all(before[tid] == inside[tid] for tid in inside if tid not in placed)
    check_restored(before)


def test_pinned_places_the_threads_that_compute(two: tuple[int, int]) -> None:
    def ticks(tid: int) -> int:
        return int(Path(f"/proc/self/task/{tid}/stat").read_text().rpartition(")")[2].split()[11])

    with pinned(Topology.parse(f"{two[0]};{two[1]}")) as placed:
        before = {tid: ticks(tid) for tid in placed}
        x = torch.ones(1 << 20)
        end = time.process_time() + 0.6
        while time.process_time() < end:
            x.sin_()
        assert all(ticks(tid) - before[tid] >= 10 for tid in placed)


def test_pinned_restores_after_an_exception(two: tuple[int, int]) -> None:
    before = masks()

    def fail() -> None:
        with pinned(Topology.parse(f"{two[0]};{two[1]}")):
            assert os.sched_getaffinity(0) == {two[0]}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    check_restored(before)


def test_pinned_nests_and_detects_the_whole_machine(two: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = two
    monkeypatch.delenv("FRONTGI_TOPOLOGY", raising=False)
    whole = Topology.detect()
    with pinned(Topology.parse(f"{a};{b}")):
        outer = masks()
        assert Topology.detect() == whole
        with pinned(Topology.parse(f"{b}")) as placed:
            assert set(placed.values()) == {(b,)}
            with pinned(Topology.parse(f"{a}")) as placed:
                assert set(placed.values()) == {(a,)}
        check_restored(outer)
        with pinned():
            pass
        check_restored(outer)


def test_pinned_as_detected(two: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRONTGI_TOPOLOGY", raising=False)
    domains = {domain.cpus for domain in Topology.detect().llc_domains}
    with pinned() as placed:
        assert len(placed) == 2
        assert set(placed.values()) <= domains


def test_pinned_never_widens(two: tuple[int, int]) -> None:
    a, b = two
    mask = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {a})
    try:
        with pinned(Topology.parse(f"{a};{b}")) as placed:
            assert set(placed.values()) == {(a,)}
        with pinned(Topology.parse(f"{a}-{b}")) as placed:
            assert set(placed.values()) == {(a,)}
        with pytest.raises(ValueError, match="pinned: 'topology' must name a CPU"):
            pinned(Topology.parse(f"{b}")).__enter__()
        assert os.sched_getaffinity(0) == {a}
    finally:
        os.sched_setaffinity(0, mask)


def test_pinned_leaves_a_worker_whose_mask_excludes_its_domain(two: tuple[int, int]) -> None:
    a, b = two
    with pinned(Topology.parse(f"{a};{b}")) as placed:
        worker = next(tid for tid in placed if tid != threading.get_native_id())
    mask = os.sched_getaffinity(worker)
    os.sched_setaffinity(worker, {a})
    try:
        with pinned(Topology.parse(f"{a};{b}")) as placed:
            assert worker not in placed
            assert os.sched_getaffinity(worker) == {a}
    finally:
        os.sched_setaffinity(worker, mask)


def test_pinned_uses_the_domains_that_exist(two: tuple[int, int]) -> None:
    with pinned(Topology.parse(f"{two[0]},60000;{two[1]},60001;60002-60003")) as placed:
        assert list(placed.values()) == [(two[0],), (two[1],)]
    with pytest.raises(ValueError, match="got 60000-60001"):
        pinned(Topology.parse("60000-60001")).__enter__()


def test_pinned_deals_workers_in_proportion(two: tuple[int, int]) -> None:
    torch.set_num_threads(6)
    with pinned(Topology.parse(f"{two[0]};{two[1]}")) as placed:
        assert list(placed.values()) == [(two[0],)] * 3 + [(two[1],)] * 3


def test_threads_born_inside_get_the_callers_mask(two: tuple[int, int]) -> None:
    mask = os.sched_getaffinity(0)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    with pinned(Topology.parse(f"{two[0]};{two[1]}")):
        thread.start()
        assert thread.native_id is not None
        assert os.sched_getaffinity(thread.native_id) == {two[0]}
    try:
        assert os.sched_getaffinity(thread.native_id) == mask
    finally:
        stop.set()
        thread.join()


def test_pinned_spares_other_python_threads_and_works_in_one(two: tuple[int, int]) -> None:
    mask = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def work() -> None:
        with pinned(Topology.parse(f"{two[1]}")):
            torch.ones(1 << 20).add_(1)
            seen.append(os.sched_getaffinity(0))
            seen.append(os.sched_getaffinity(os.getpid()))
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [{two[1]}, mask, mask]


def test_pinned_tolerates_workers_that_end(two: tuple[int, int]) -> None:
    torch.set_num_threads(4)
    with pinned(Topology.parse(f"{two[0]};{two[1]}")) as placed:
        assert len(placed) == 4
        torch.set_num_threads(2)
        torch.ones(1 << 20).add_(1)


@needs_affinity
def test_pinned_in_a_forked_process_places_the_caller() -> None:
    script = """
import os, signal, torch
from frontgi_pyg.pinning import pinned
from frontgi_pyg.topology import Topology
torch.set_num_threads(2)
torch.ones(1 << 20).add_(1)
cpu = min(os.sched_getaffinity(0))
if (child := os.fork()) == 0:
    signal.alarm(20)
    mask = os.sched_getaffinity(0)
    with pinned(Topology.parse(str(cpu))) as placed:
        ok = placed == {os.getpid(): (cpu,)} and os.sched_getaffinity(0) == {cpu}
    os._exit(0 if ok and os.sched_getaffinity(0) == mask else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@needs_affinity
def test_import_changes_nothing() -> None:
    script = """
import os, torch
def state():
    masks = {t: os.sched_getaffinity(int(t)) for t in os.listdir("/proc/self/task")}
    return masks, dict(os.environ)
before = state()
import frontgi_pyg.topology
assert state() == before
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
