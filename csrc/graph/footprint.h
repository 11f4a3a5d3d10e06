// SPDX-License-Identifier: MIT
// How a graph's rows share their sources: the average number of distinct sources among so many consecutive edges.
//
// From it follows what a least-recently-used cache of any size misses (Xiang, Ding, Luo and Bao, "HOTL: a higher order
// theory of locality", ASPLOS 2013): a cache of c rows is filled by a window of w edges, where footprint(w) = c, and
// misses at the rate at which the footprint still grows there. Skew (hubs that stay) and local row orders both show.
//
// Layout: values at the windows of `footprint_window(0), (1), ...`, four to an octave, linear between them; at a last
// window beyond all edges, as it grew up to them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace frontgi {

using Footprint = std::vector<double>;

int64_t footprint_window(int64_t index);

// Of the columns `col` [edges] of all rows, in order, taken from the middle `edges_max` where there are more. One pass
// over the edges with a table of `columns` entries. Empty if there are no edges. Throws std::out_of_range for a column
// that is none.
Footprint footprint_of(const void* col, bool wide_index, int64_t edges, int64_t columns,
                       int64_t edges_max = int64_t{1} << 23);

// Of edges whose sources are drawn evenly from `columns`: what is assumed where none was measured.
Footprint uniform_footprint(int64_t edges, int64_t columns);

// Distinct sources among `window` consecutive edges; beyond the windows known, as it grew in the last of them (edges
// may be a part of a graph's: whoever asks for more knows how many sources there are).
double distinct_sources(const Footprint& footprint, double window);

// What goes through a cache while a graph's sources are gathered: a source's row, and what streams by with each edge.
// Of `blocks` equal blocks of the columns, one is gathered from: an edge of it comes with so many others in the graph.
struct Gathering {
  double row_bytes = 1, streamed_bytes = 0, blocks = 1;
  double sources = std::numeric_limits<double>::infinity();  // that the graph has
};

// Edges out of `edges` whose source a least-recently-used cache of `bytes`, cold at first, does not hold.
double missed_edges(const Footprint& footprint, double edges, double bytes, const Gathering& gathering = {});

}  // namespace frontgi
