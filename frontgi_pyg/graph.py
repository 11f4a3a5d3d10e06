# SPDX-License-Identifier: MIT
"""A graph as the kernels want it: CSR by destination, with everything that is worth computing once.

Layout: row ``v`` of the CSR lists the sources aggregated into node ``v``, columns ascending, edges with equal ends in
their given order; ``rowptr`` is int64, ``col`` and ``perm`` are int32 where all indices fit. ``perm[p]`` is the given
position of the edge stored at ``p``. Multiplicity is kept.

Invariant: a :class:`Graph` was checked when it was made, and its tensors were not written to since: the kernels trust
them. A write that torch can see is refused at the next use (:meth:`Graph.require_unwritten`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from frontgi_pyg.library import fake_kernel
from frontgi_pyg.memory import in_transform, plain, remember

Origin = Literal["edge_index", "sparse_tensor", "torch_sparse"]
Loops = Literal["none", "add", "replace", "remain"]
Flow = Literal["source_to_target", "target_to_source"]
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class DegreeStats:
    r"""Statistics of the in-degrees of a graph.

    Args:
        mean: Average degree.
        maximum: Largest degree.
        quantiles: Degrees at the 25, 50, 75, 90 and 99 % points, by those numbers.
        alpha: Exponent of the power law :math:`p(d) = d^{-\alpha} / \zeta(\alpha)` fitted by maximum likelihood to the
            degrees of at least 1 (Clauset, Shalizi and Newman, 2009, eq. 3.5); infinite where none is above 1.
    """

    mean: float
    maximum: int
    quantiles: dict[int, float]
    alpha: float


class _Unwritten:
    """The tensors of a CSR as they were when they were checked."""

    @classmethod
    def of(cls, rowptr: Any, col: Any, perm: Any) -> _Unwritten | None:
        """Remembers them; :obj:`None` while tracing, and of inference tensors, which have no version counter."""
        stored = (rowptr, col, rowptr if perm is None else perm)
        if torch.compiler.is_compiling() or not all(isinstance(t, Tensor) and not t.is_inference() for t in stored):
            return None
        made = cls()
        made.tensors, made.versions = stored, tuple(t._version for t in stored)
        return made

    def still(self, rowptr: Tensor, col: Tensor, perm: Tensor | None) -> bool:
        """Returns whether these are the very tensors, and were not written to."""
        own_rowptr, own_col, own_perm = self.tensors
        return (
            rowptr is own_rowptr
            and col is own_col
            and (own_perm is (rowptr if perm is None else perm))
            and (rowptr._version, col._version, own_perm._version) == self.versions
        )

    tensors: tuple[Tensor, Tensor, Tensor]
    versions: tuple[int, ...]


class Graph:
    r"""A graph in CSR form, accepted by every layer in the place of ``edge_index``.

    Make one with :meth:`from_edge_index`, :meth:`from_sparse` or :meth:`from_csr`. The constructor takes what is
    already in this form, and checks that it is; the tensors are shared, and not to be written to afterwards.

    Args:
        rowptr: int64 ``[num_dst_nodes + 1]``.
        col: int32 or int64 ``[num_edges]``, ascending within a row.
        num_src_nodes: Number of sources; :obj:`None` means as many as destinations.
        perm: The given position of each stored edge, ``[num_edges]``; :obj:`None` if edges are stored as given.
        edge_weight: ``[num_edges]``, in the *given* order.
        origin: The kind of adjacency it was made from. PyG's layers treat self-loops and edge weights of each kind
            in a way of its own, and ours treat a graph like its origin.

    Raises:
        TypeError: If an argument is not a tensor of the dtype named.
        ValueError: If a shape or device is wrong, ``rowptr`` does not start at 0, falls or does not end at the number
            of edges, or columns fall within a row.
        IndexError: If a column is outside ``[0, num_src_nodes)`` or a position outside ``[0, num_edges)``.

    Example:
        >>> import torch
        >>> from frontgi_pyg import Graph
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 2, 1], [1, 1, 2]]), num_nodes=4)
        >>> graph.rowptr.tolist(), graph.col.tolist()
        ([0, 0, 2, 3, 3], [0, 2, 1])
    """

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        num_src_nodes: int | None = None,
        perm: Tensor | None = None,
        edge_weight: Tensor | None = None,
        origin: Origin = "edge_index",
        *,
        _checked: bool = False,
    ) -> None:
        self.rowptr = rowptr
        self.col = col
        self.perm = perm
        self.edge_weight = edge_weight
        self.origin: Origin = origin
        self._num_src_nodes = num_src_nodes
        self._once: dict[Any, Any] = {}  # of the structure alone: shared with every weighting of it
        self._by_weight: WeakIdKeyDictionary | None = None
        if not _checked:
            self._check()
        self._trusted = _Unwritten.of(rowptr, col, perm)

    # Construction ---------------------------------------------------------------------------------

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | tuple[int, int] | None = None,
        edge_weight: Tensor | None = None,
        *,
        flow: Flow = "source_to_target",
    ) -> Graph:
        r"""Converts a COO ``edge_index``, stably and in parallel.

        Args:
            edge_index: int32 or int64 ``[2, num_edges]``, or PyG's ``EdgeIndex``; row 0 holds sources (with ``flow``
                ``"target_to_source"``: destinations).
            num_nodes: Number of nodes, or ``(sources, destinations)``; found from the indices if :obj:`None`.
            edge_weight: ``[num_edges]`` (optional).
            flow: Direction of messages, as in PyG.

        Raises:
            ValueError: If ``edge_index`` or ``edge_weight`` has the wrong shape or device, or ``flow`` is unknown.
            TypeError: If ``edge_index`` is not a tensor of int32 or int64.
            IndexError: If an index is negative or not below the number of nodes.
        """
        _require_indices(edge_index=edge_index)
        if edge_index.dim() != 2 or edge_index.size(0) != 2:
            raise ValueError(f"Graph: 'edge_index' must be [2, num_edges] (got {list(edge_index.shape)})")
        num_edges = edge_index.size(1)
        _require_weight(edge_weight, num_edges)
        if flow not in ("source_to_target", "target_to_source"):
            raise ValueError(f"Graph: 'flow' must be 'source_to_target' or 'target_to_source' (got {flow!r})")
        _require_cpu(edge_index=edge_index)
        if num_nodes is None:
            num_nodes = _num_nodes(edge_index, flow)
        num_src, num_dst = (num_nodes, num_nodes) if not isinstance(num_nodes, tuple) else num_nodes
        edge_index = plain(edge_index).long()
        source, target = (0, 1) if flow == "source_to_target" else (1, 0)
        rowptr, col, perm = _trainable(
            lambda: torch.ops.frontgi.coo_to_csr(edge_index[target], edge_index[source], num_dst, num_src)
        )
        square = not isinstance(num_nodes, tuple)
        return cls(rowptr, col, None if square else num_src, perm, edge_weight, _checked=True)

    @classmethod
    def from_csr(
        cls,
        rowptr: Tensor,
        col: Tensor,
        num_src_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        *,
        origin: Origin = "edge_index",
    ) -> Graph:
        r"""Takes a CSR by destination, sorting columns within rows where they are not.

        Args:
            rowptr: int32 or int64 ``[num_dst_nodes + 1]``.
            col: int32 or int64 ``[num_edges]``.
            num_src_nodes: Number of sources; as many as destinations if :obj:`None`.
            edge_weight: ``[num_edges]`` (optional).
            origin: See :class:`Graph`.

        Raises:
            TypeError: If ``rowptr`` or ``col`` is not a tensor of int32 or int64.
            ValueError: If ``rowptr`` does not start at 0, falls, or does not end at the number of edges; if a shape or
                device is wrong.
            IndexError: If a column is outside ``[0, num_src_nodes)``.
        """
        _require_indices(rowptr=rowptr, col=col)
        _require_cpu(rowptr=rowptr, col=col)
        rowptr, col = _own(rowptr.long()), _own(col.contiguous())
        square = num_src_nodes is None
        num_src = rowptr.numel() - 1 if num_src_nodes is None else num_src_nodes
        torch.ops.frontgi.check_csr(rowptr, col, num_src)
        _require_weight(edge_weight, col.numel())
        perm = None
        if not _columns_ascend(rowptr, col):
            rowptr, col, perm = _trainable(
                lambda: torch.ops.frontgi.coo_to_csr(
                    expand_rowptr(rowptr, col.numel()), col.long(), rowptr.numel() - 1, num_src
                )
            )
        if col.dtype == torch.int64 and max(num_src, col.numel()) <= torch.iinfo(torch.int32).max:
            col = _trainable(col.int)
        return cls(rowptr, col, None if square else num_src, perm, edge_weight, origin, _checked=True)

    @classmethod
    def from_sparse(cls, adj_t: Any) -> Graph:
        r"""Takes a *transposed* adjacency: ``torch_sparse.SparseTensor`` or ``torch.sparse`` CSR, CSC or COO.

        Rows are destinations, as wherever PyG takes a sparse adjacency. Values become edge weights; entries of an
        uncoalesced COO tensor are all kept.

        Raises:
            TypeError: If ``adj_t`` is none of these.
            ValueError: If it is not a matrix with one value an entry.
        """
        if isinstance(adj_t, Tensor) and adj_t.layout != torch.strided:
            if adj_t.dim() != 2:
                raise ValueError(f"Graph: 'adj_t' must be a matrix (got {list(adj_t.shape)})")
            num_dst, num_src = adj_t.shape
            num_src_nodes = None if num_src == num_dst else num_src
            if adj_t.layout == torch.sparse_csr:
                rowptr, col, value = adj_t.crow_indices(), adj_t.col_indices(), adj_t.values()
                return cls.from_csr(rowptr, col, num_src_nodes, value, origin="torch_sparse")
            if adj_t.layout == torch.sparse_csc:
                colptr, row, value = adj_t.ccol_indices().long(), adj_t.row_indices(), adj_t.values()
                torch.ops.frontgi.check_csr(colptr, row, num_dst)
                col = expand_rowptr(colptr, row.numel())
            elif adj_t.layout == torch.sparse_coo:
                if adj_t.requires_grad:
                    adj_t = adj_t.coalesce()  # the values of any other carry no gradient
                row, col = adj_t._indices()
                value = adj_t.values() if adj_t.is_coalesced() else adj_t._values()
            else:
                raise TypeError(f"Graph: 'adj_t' has an unsupported layout (got {adj_t.layout})")
            if value.dim() != 1:
                raise ValueError(f"Graph: 'adj_t' must have one value an entry (got {list(value.shape)})")
            graph = cls.from_edge_index(torch.stack([col, row]), (num_src, num_dst), value)
            graph._num_src_nodes = num_src_nodes
            graph.origin = "torch_sparse"
            return graph
        if hasattr(adj_t, "csr") and hasattr(adj_t, "sparse_size"):
            rowptr, col, value = adj_t.csr()
            num_dst, num_src = adj_t.sparse_size(0), adj_t.sparse_size(1)
            num_src_nodes = None if num_src == num_dst else num_src
            return cls.from_csr(rowptr, col, num_src_nodes, value, origin="sparse_tensor")
        raise TypeError(f"Graph: 'adj_t' must be a SparseTensor or a torch.sparse matrix (got {type(adj_t).__name__})")

    # Shape and statistics -------------------------------------------------------------------------

    @property
    def num_dst_nodes(self) -> int:
        """Number of rows: nodes aggregated into."""
        return self.rowptr.size(0) - 1

    @property
    def num_src_nodes(self) -> int:
        """Number of columns: nodes aggregated from."""
        return self.num_dst_nodes if self._num_src_nodes is None else self._num_src_nodes

    @property
    def num_edges(self) -> int:
        """Number of stored edges, multiplicity counted."""
        return self.col.size(0)

    @property
    def degree_stats(self) -> DegreeStats:
        """Statistics of the in-degrees, computed once."""
        stats: DegreeStats = self.once("stats", lambda: _degree_stats(self.rowptr))
        return stats

    def __repr__(self) -> str:
        sizes = (
            f"{self.num_src_nodes} -> {self.num_dst_nodes}"
            if self._num_src_nodes is not None
            else f"{self.num_dst_nodes}"
        )
        weighted = ", weighted" if self.edge_weight is not None else ""
        return f"Graph({sizes} nodes, {self.num_edges} edges{weighted})"

    # What is computed once ------------------------------------------------------------------------

    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns ``(rowptr, col, perm)`` by source, ``perm`` holding positions in this CSR; computed once."""
        self.require_unwritten()

        def build() -> tuple[tuple[Tensor, Tensor, Tensor], _Unwritten | None]:
            made = transpose(self.rowptr, self.col, self.num_src_nodes)
            return made, _Unwritten.of(*made)

        made, trusted = self.once("transposed", build)
        if trusted is not None and not torch.compiler.is_compiling() and not trusted.still(*made):
            raise ValueError(f"Graph: the transpose of {self} was written to after it was made")
        return made

    def weighted(self, edge_weight: Tensor | None) -> Graph:
        """Returns this graph with other edge weights, ``[num_edges]`` in the given order; the structure is shared."""
        _require_weight(edge_weight, self.num_edges)
        other = Graph(self.rowptr, self.col, self._num_src_nodes, self.perm, edge_weight, self.origin, _checked=True)
        other._once = self._once
        other._trusted = self._trusted
        return other

    def t(self) -> Graph:
        """Returns the graph with every edge reversed; the conversion is done once."""
        rowptr, col, positions = self.transposed()
        perm = positions if self.perm is None else self.perm[positions]
        num_src_nodes = None if self._num_src_nodes is None else self.num_dst_nodes
        return Graph(rowptr, col, num_src_nodes, perm, self.edge_weight, self.origin, _checked=True)

    def by_relation(self, edge_type: Tensor, num_relations: int) -> tuple[tuple[Tensor, Graph], ...]:
        """Returns, for each type of edge, the destinations that have one, ascending, and the graph of these alone.

        Each graph leads from all sources to as many destinations as are listed. Made once for an ``edge_type``
        (``[num_edges]``, in the given order), and again only if it was written to.

        Raises:
            IndexError: If a type is outside ``[0, num_relations)``.
        """

        def build() -> tuple[tuple[Tensor, Graph], ...]:
            types = edge_type.long() if self.perm is None else edge_type.long()[self.perm]
            if types.numel() and not 0 <= (low := int(types.min())) <= (high := int(types.max())) < num_relations:
                wrong = low if low < 0 else high
                raise IndexError(f"by_relation: 'edge_type' must be in [0, {num_relations}) (got {wrong})")
            positions = torch.arange(self.num_edges, device="cpu")
            ends, order, _ = torch.ops.frontgi.coo_to_csr(types, positions, num_relations, self.num_edges)
            rows, col = expand_rowptr(self.rowptr, self.num_edges)[order], self.col[order]
            bounds = itertools.pairwise(ends.tolist())
            return tuple(self._of_rows(rows[begin:end], col[begin:end]) for begin, end in bounds)

        self.require_unwritten()
        return self._remember_weight(edge_type, ("relations", num_relations), build)

    def _of_rows(self, rows: Tensor, col: Tensor) -> tuple[Tensor, Graph]:
        """Returns the distinct ones of ``rows``, ascending, and the graph whose rows they are."""
        rows, degree = rows.unique_consecutive(return_counts=True)
        rowptr = degree.new_zeros(rows.numel() + 1)
        rowptr[1:] = degree.cumsum(0)
        return rows, Graph(rowptr, col, self.num_src_nodes, origin=self.origin, _checked=True)

    def csr_weight(self, edge_weight: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Returns edge weights (the graph's own if :obj:`None`) in ``dtype`` and in the order of the CSR."""
        if edge_weight is None:
            edge_weight = self.edge_weight
        if edge_weight is None:
            return None
        weight = edge_weight
        _require_weight(weight, self.num_edges)
        if self.perm is None and weight.dtype == dtype:
            return weight  # not remembered: a memory that holds its own key never lets go of it

        def build() -> Tensor:
            stored = weight if self.perm is None else weight[self.perm]
            return stored.to(dtype)

        return self._remember_weight(weight, ("csr", dtype), build)

    def gcn_norm(
        self,
        edge_weight: Tensor | None,
        loops: Loops,
        fill: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        r"""Returns :math:`\hat{d}^{-1/2}` and the scale of each node's own features, both ``[num_nodes]``.

        Computed once for each combination of arguments, and again only if ``edge_weight`` was written to.
        """

        def build() -> tuple[Tensor, Tensor]:
            weight = self.csr_weight(edge_weight, dtype)
            wide = dtype == torch.float64
            inv_sqrt, self_scale = torch.ops.frontgi.gcn_norm(self.rowptr, self.col, weight, fill, loops, wide, True)
            return inv_sqrt, self_scale

        self.require_unwritten()
        key = ("gcn_norm", loops, fill, dtype)
        if edge_weight is None:
            edge_weight = self.edge_weight
        if edge_weight is not None:
            return self._remember_weight(edge_weight, key, build)
        return self.once(key, build)

    def edge_index(self) -> Tensor:
        """Returns the int64 ``[2, num_edges]`` edges (source, destination) in their given order."""
        self.require_unwritten()
        both = torch.stack([self.col.long(), expand_rowptr(self.rowptr, self.num_edges)])
        if self.perm is None:
            return both
        given = torch.empty_like(both)
        given[:, self.perm.long()] = both
        return given

    def _remember_weight(self, weight: Tensor, key: Any, build: Callable[[], Value]) -> Value:
        if torch.compiler.is_compiling():
            return build()
        if self._by_weight is None:
            self._by_weight = WeakIdKeyDictionary()
        return remember(self._by_weight, weight, key, build)

    def footprint(self) -> tuple[float, ...]:
        """Returns how many distinct sources there are, on average, among so many consecutive edges.

        At windows of 1, 2, ..., 8, 10, 12, 14, 16, 20, ... edges, four to an octave, up to all of them or 8 million
        from the middle. The misses of a cache of any size follow from it (Xiang et al., "HOTL: a higher order theory
        of locality", ASPLOS 2013). Computed once, in one pass over the edges by one thread with 8 bytes a source.

        Raises:
            ValueError: If the graph was written to.
        """
        self.require_unwritten()

        def build() -> tuple[float, ...]:
            return tuple(torch.ops.frontgi.footprint(self.col, self.num_src_nodes).tolist())

        return self.once("footprint", build)

    def once(self, key: Any, build: Callable[[], Value]) -> Value:
        """Returns ``build()``, remembered under ``key``: for what follows from the structure alone."""
        if torch.compiler.is_compiling() or in_transform():
            return build()
        if key not in self._once:
            with torch.inference_mode(False):  # it may be saved for a backward pass later
                self._once[key] = build()
        value: Value = self._once[key]
        return value

    def __getstate__(self) -> dict[str, Any]:
        kept = ("rowptr", "col", "perm", "edge_weight", "origin", "_num_src_nodes")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._once = {}
        self._by_weight = None
        self._check()
        self._trusted = _Unwritten.of(self.rowptr, self.col, self.perm)

    # What the kernels trust -----------------------------------------------------------------------

    def require_unwritten(self) -> None:
        """Raises :class:`ValueError` if ``rowptr``, ``col`` or ``perm`` was written to, or exchanged, since then.

        Torch's version counters tell. They do not see writes through NumPy or ``.data`` or to inference tensors, and
        compiled functions do not ask.
        """
        trusted = self._trusted
        if trusted is None or torch.compiler.is_compiling():
            return
        if not trusted.still(self.rowptr, self.col, self.perm):
            raise ValueError(f"Graph: {self} was written to after it was made: make a new one of the changed tensors")

    def _check(self) -> None:
        """Raises unless the tensors are what the class promises (one pass over them)."""
        _require_indices(rowptr=self.rowptr, col=self.col, perm=self.perm)
        if self.rowptr.dim() != 1:
            raise ValueError(f"Graph: 'rowptr' must be 1-D (got {list(self.rowptr.shape)})")
        _require_cpu(rowptr=self.rowptr, col=self.col, perm=self.perm)
        num_src = self._num_src_nodes
        if num_src is not None and (not isinstance(num_src, int) or num_src < 0):
            kind = ValueError if isinstance(num_src, int) else TypeError
            raise kind(f"Graph: 'num_src_nodes' must be an integer of at least 0 (got {num_src!r})")
        torch.ops.frontgi.check_csr(self.rowptr, self.col, self.num_src_nodes)
        _require_weight(self.edge_weight, self.num_edges)
        if self.perm is not None and tuple(self.perm.shape) != (self.num_edges,):
            raise ValueError(f"Graph: 'perm' must be [{self.num_edges}] (got {list(self.perm.shape)})")
        if not _columns_ascend(self.rowptr, self.col):
            raise ValueError("Graph: columns must ascend within a row (Graph.from_csr sorts them)")
        if self.perm is not None:
            one_row = torch.tensor([0, self.num_edges], device="cpu")
            try:
                torch.ops.frontgi.check_csr(one_row, self.perm, self.num_edges)
            except IndexError as error:
                raise IndexError(str(error).replace("'col'", "'perm'")) from None
            named = torch.zeros(self.num_edges, dtype=torch.bool, device="cpu")
            named[self.perm.long()] = True
            if not bool(named.all()):
                raise ValueError("Graph: 'perm' must name every position once")


# Small conversions --------------------------------------------------------------------------------


def expand_rowptr(rowptr: Tensor, num_edges: int) -> Tensor:
    """Returns the row of each edge, int64 ``[num_edges]``."""
    rows = torch.arange(rowptr.size(0) - 1, device=rowptr.device)
    return torch.repeat_interleave(rows, rowptr.diff(), output_size=num_edges)


def transpose(rowptr: Tensor, col: Tensor, num_cols: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the CSR of the transposed matrix, and the position in the given one of each of its entries."""
    rows = expand_rowptr(rowptr, col.size(0))
    result: tuple[Tensor, Tensor, Tensor] = torch.ops.frontgi.coo_to_csr(col.long(), rows, num_cols, rowptr.size(0) - 1)
    return result


def _require_indices(**tensors: Any) -> None:
    for name, t in tensors.items():
        if t is not None and (not isinstance(t, Tensor) or t.dtype not in (torch.int32, torch.int64)):
            got = t.dtype if isinstance(t, Tensor) else type(t).__name__
            raise TypeError(f"Graph: '{name}' must be an int32 or int64 tensor (got {got})")


def _require_weight(edge_weight: Any, num_edges: int) -> None:
    if edge_weight is None:
        return
    if not isinstance(edge_weight, Tensor):
        raise TypeError(f"Graph: 'edge_weight' must be a tensor (got {type(edge_weight).__name__})")
    if edge_weight.dim() != 1 or edge_weight.size(0) != num_edges:
        raise ValueError(f"Graph: 'edge_weight' must be [{num_edges}] (got {list(edge_weight.shape)})")
    if edge_weight.is_complex():
        raise TypeError(f"Graph: 'edge_weight' must be real (got {edge_weight.dtype})")
    _require_cpu(edge_weight=edge_weight)


def _trainable(build: Callable[[], Value]) -> Value:
    """Returns ``build()``, of no inference tensors: a backward pass may save them later."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return build()
    with torch.inference_mode(False):
        return build()


def _own(t: Tensor) -> Tensor:
    return t if torch.compiler.is_compiling() or not t.is_inference() else _trainable(t.clone)


def _require_cpu(**tensors: Tensor | None) -> None:
    for name, t in tensors.items():
        if t is not None and t.device.type != "cpu":
            raise ValueError(f"Graph: '{name}' must be on the CPU (got {t.device})")


def _num_nodes(edge_index: Tensor, flow: Flow) -> int | tuple[int, int]:
    size = getattr(edge_index, "sparse_size", None)
    if size is not None:
        num_src, num_dst = size() if flow == "source_to_target" else reversed(size())
        if num_src is not None and num_dst is not None:
            return num_src if num_src == num_dst else (num_src, num_dst)
    return int(plain(edge_index).max()) + 1 if edge_index.numel() > 0 else 0


def _columns_ascend(rowptr: Tensor, col: Tensor) -> bool:
    if col.numel() < 2:
        return True
    falls = col[1:] < col[:-1]
    starts = rowptr[1:-1]
    starts = starts[(starts > 0) & (starts < col.numel())]
    falls[starts - 1] = False  # a row may begin below the end of the row before
    return not bool(falls.any())


def _degree_stats(rowptr: Tensor) -> DegreeStats:
    degree = rowptr.diff()
    if degree.numel() == 0:
        return DegreeStats(0.0, 0, dict.fromkeys((25, 50, 75, 90, 99), 0.0), float("inf"))
    ordered = degree.sort().values
    last = ordered.numel() - 1
    quantiles = {q: float(ordered[round(q / 100 * last)]) for q in (25, 50, 75, 90, 99)}
    return DegreeStats(float(degree.double().mean()), int(ordered[-1]), quantiles, _power_law_exponent(degree))


def _power_law_exponent(degree: Tensor) -> float:
    mean_log = degree[degree > 0].double().log().mean()
    if not mean_log > 0:
        return float("inf")
    # The negative log-likelihood of a degree is convex in the exponent: its least is found by cutting in thirds.
    # Eq. 3.7, the usual closed form, is far off where degrees start at 1 (2.0 for 2.5).
    low, high = torch.tensor([1.0, 64.0], dtype=torch.float64)
    for _ in range(100):
        exponents = torch.stack([low + (high - low) / 3, high - (high - low) / 3])
        left, right = torch.special.zeta(exponents, torch.ones_like(exponents)).log() + exponents * mean_log
        low, high = (low, exponents[1]) if left < right else (exponents[0], high)
    return float((low + high) / 2)


# Fake kernels -------------------------------------------------------------------------------------


@fake_kernel("coo_to_csr")
def _coo_to_csr_fake(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> tuple[Tensor, Tensor, Tensor]:
    # Not max(): it would ask which is the largest, and so compile again where another one is.
    fits = torch.sym_max(torch.sym_max(num_rows, num_cols), row.size(0)) <= torch.iinfo(torch.int32).max
    indices = torch.int32 if fits else torch.int64
    return (
        row.new_empty(num_rows + 1),
        row.new_empty(row.size(0), dtype=indices),
        row.new_empty(row.size(0), dtype=indices),
    )


@fake_kernel("gcn_norm")
def _gcn_norm_fake(
    rowptr: Tensor,
    col: Tensor,
    edge_weight: Tensor | None,
    fill: float,
    loops: str,
    wide: bool,
    *_: Any,
) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if wide else torch.float32
    nodes = rowptr.size(0) - 1
    return rowptr.new_empty(nodes, dtype=dtype), rowptr.new_empty(nodes, dtype=dtype)


@fake_kernel("check_csr")
def _check_csr_fake(rowptr: Tensor, col: Tensor, num_cols: int) -> None:
    return None


# As an input of torch.export and of compiled functions: tensors are leaves, the rest is part of the structure.


def _flatten(graph: Graph) -> tuple[list[Any], tuple[Any, ...]]:
    leaves = [graph.rowptr, graph.col, graph.perm, graph.edge_weight]
    return leaves, (graph._num_src_nodes, graph.origin)


def _flatten_with_keys(graph: Graph) -> tuple[list[Any], tuple[Any, ...]]:
    leaves, context = _flatten(graph)
    names = ("rowptr", "col", "perm", "edge_weight")
    return [(torch.utils._pytree.GetAttrKey(name), leaf) for name, leaf in zip(names, leaves, strict=True)], context


def _unflatten(leaves: Any, context: tuple[Any, ...]) -> Graph:
    rowptr, col, perm, edge_weight = leaves
    # While tracing, leaves may be fake, wrapped, or no tensors at all.
    real = all(type(leaf) is Tensor for leaf in (rowptr, col)) and (perm is None or type(perm) is Tensor)
    checked = not real or in_transform() or torch.compiler.is_compiling()
    return Graph(rowptr, col, context[0], perm, edge_weight, context[1], _checked=checked)


torch.utils._pytree.register_pytree_node(
    Graph,
    _flatten,
    _unflatten,
    serialized_type_name="frontgi_pyg.Graph",
    flatten_with_keys_fn=_flatten_with_keys,
    to_dumpable_context=list,
    from_dumpable_context=tuple,
)
