# SPDX-License-Identifier: MIT
"""The twelve graphs of FrontGI's table 2, and seeded twins of them.

A twin has the nodes, edges, average and maximum degree of its graph and a power law of its exponent, but not its
communities nor its order of nodes: what a cache makes of locality does not carry over. S19 is no twin: it is drawn as
Graph500 draws it. Molecules are many small components of near-regular degree.

Source: FrontGI (arXiv 2610.34911), table 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from .edge_list import EdgeList
from .generators import kronecker, molecules, power_law


@dataclass(frozen=True)
class PaperGraph:
    """A row of table 2.

    Args:
        name: Its name there.
        num_nodes: Nodes.
        num_edges: Edges.
        max_degree: The largest degree.
        exponent: Of the power law its degrees follow; :obj:`None` for molecules.
    """

    name: str
    num_nodes: int
    num_edges: int
    max_degree: int
    exponent: float | None


PAPER_GRAPHS = {
    "MT": PaperGraph("OGBG-Moltox21", 145_459, 302_190, 6, None),
    "MH": PaperGraph("OGBG-Molhiv", 1_049_163, 2_259_376, 10, None),
    "AX": PaperGraph("OGBN-Arxiv", 169_343, 1_166_243, 13_155, 2.56),
    "YP": PaperGraph("Yelp", 716_847, 13_954_819, 4_886, 2.41),
    "KA": PaperGraph("Wikipedia-ka", 159_756, 4_887_982, 28_372, 2.27),
    "S19": PaperGraph("Graph500 scale 19", 335_319, 15_459_349, 41_357, 1.54),
    "PC": PaperGraph("Petster-Carnivore", 149_701, 10_897_472, 80_635, 2.12),
    "HU": PaperGraph("Wikipedia-hu", 621_512, 46_358_909, 193_228, 2.26),
    "RT": PaperGraph("Reuters", 781_266, 121_132_159, 345_076, 1.71),
    "YH": PaperGraph("Yahoo Music", 1_000_991, 256_804_235, 468_366, 2.34),
    "RD": PaperGraph("Reddit", 232_965, 114_848_857, 21_657, 5.01),
    "PT": PaperGraph("OGBN-Proteins", 132_534, 79_122_504, 7_750, 6.89),
}


def twin(graph: str, share: float = 1.0, seed: int = 0) -> EdgeList:
    """Draws the twin of a graph of table 2.

    Args:
        graph: Its id there, such as ``"PT"``.
        share: Draw this share of the edges, and of the largest degree, over all of the nodes: features and caches keep
            their sizes.
        seed: The same seed gives the same graph.

    Returns:
        ``edge_index``, ``[2, num_edges]``, ``int64``, and ``num_nodes``. S19 has the nodes that are left when isolated
        ones are removed.

    Raises:
        ValueError: If there is no such graph or ``share`` is not above 0 and at most 1; of molecules, if it is not 1.
    """
    if graph not in PAPER_GRAPHS:
        raise ValueError(f"twin: 'graph' must be one of {', '.join(PAPER_GRAPHS)} (got {graph!r})")
    if not 0 < share <= 1:
        raise ValueError(f"twin: 'share' must be above 0 and at most 1 (got {share})")
    like = PAPER_GRAPHS[graph]
    if graph == "S19":
        return kronecker(19, max(1, round(16 * share)), seed=seed)
    if like.exponent is None:
        if share != 1:
            raise ValueError(f"twin: molecules are drawn whole, 'share' must be 1 (got {share})")
        return molecules(like.num_nodes, like.num_edges, seed=seed)
    top = max(1, round(like.max_degree * share))
    return power_law(like.num_nodes, round(like.num_edges * share), like.exponent, top, seed=seed)
