// SPDX-License-Identifier: MIT
// Graphs that the tests run on, as CSR: every shape that has broken a kernel somewhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "matrix.h"

namespace frontgi::test {

// Vectors of exactly their size, so that the sanitizer sees an access behind them.
struct Graph {
  std::string name;
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> rowptr, col;
  std::vector<int32_t> narrow_col;

  int64_t edges() const { return static_cast<int64_t>(col.size()); }
  const void* col_data(bool wide) const { return wide ? static_cast<const void*>(col.data()) : narrow_col.data(); }
};

using Edges = std::vector<std::pair<int64_t, int64_t>>;  // (row, column)

inline Graph graph_of(std::string name, int64_t rows, int64_t columns, Edges edges) {
  std::stable_sort(edges.begin(), edges.end());
  Graph graph;
  graph.name = std::move(name);
  graph.rows = rows;
  graph.columns = columns;
  graph.rowptr = std::vector<int64_t>(static_cast<size_t>(rows + 1), 0);
  graph.col = std::vector<int64_t>(edges.size());
  for (size_t e = 0; e < edges.size(); ++e) {
    ++graph.rowptr[static_cast<size_t>(edges[e].first + 1)];
    graph.col[e] = edges[e].second;
  }
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) graph.rowptr[r + 1] += graph.rowptr[r];
  graph.narrow_col = std::vector<int32_t>(graph.col.begin(), graph.col.end());
  return graph;
}

inline Graph random_graph(std::string name, int64_t rows, int64_t columns, int64_t edges, Random& random) {
  Edges all;
  for (int64_t e = 0; e < edges; ++e) all.emplace_back(random.below(rows), random.below(columns));
  return graph_of(std::move(name), rows, columns, all);
}

// Degrees fall as 1 / rank; ranks are dealt to rows at random, or in order if `sorted`.
inline Graph power_law_graph(std::string name, int64_t nodes, int64_t hub_degree, bool sorted, Random& random) {
  std::vector<int64_t> row_of_rank;
  for (int64_t r = 0; r < nodes; ++r) row_of_rank.push_back(r);
  if (!sorted) {
    for (int64_t r = nodes - 1; r > 0; --r) {
      std::swap(row_of_rank[static_cast<size_t>(r)], row_of_rank[static_cast<size_t>(random.below(r + 1))]);
    }
  }
  Edges all;
  for (int64_t rank = 0; rank < nodes; ++rank) {
    for (int64_t e = 0; e < hub_degree / (rank + 1); ++e) {
      all.emplace_back(row_of_rank[static_cast<size_t>(rank)], random.below(nodes));
    }
  }
  return graph_of(std::move(name), nodes, nodes, all);
}

// A few rows of very many edges between rows of few.
inline Graph hub_graph(std::string name, int64_t rows, int64_t columns, int64_t hub_degree, Random& random) {
  Edges all;
  for (const int64_t hub : {rows / 3, rows / 3 + 1, rows - 1}) {
    for (int64_t e = 0; e < hub_degree; ++e) all.emplace_back(hub, random.below(columns));
  }
  for (int64_t r = 0; r < rows; r += 2) all.emplace_back(r, random.below(columns));
  return graph_of(std::move(name), rows, columns, all);
}

inline std::vector<Graph> small_graphs() {
  Random random(1);
  std::vector<Graph> all;
  all.push_back(graph_of("empty", 0, 0, {}));
  all.push_back(graph_of("no rows", 0, 5, {}));
  all.push_back(graph_of("no edges", 5, 5, {}));
  all.push_back(graph_of("no columns", 3, 0, {}));
  all.push_back(graph_of("isolated", 9, 9, {{1, 2}, {1, 4}, {4, 4}, {6, 0}}));
  Edges hub;
  for (int64_t e = 0; e < 70; ++e) hub.emplace_back(3, e % 11);
  hub.emplace_back(0, 1);
  all.push_back(graph_of("one hub", 11, 11, hub));
  all.push_back(graph_of("duplicates", 4, 4, {{0, 1}, {0, 1}, {0, 1}, {2, 3}, {2, 3}, {3, 0}}));
  all.push_back(graph_of("loops", 5, 5, {{0, 0}, {1, 0}, {1, 1}, {1, 1}, {2, 2}, {3, 1}, {3, 4}}));
  all.push_back(random_graph("bipartite", 6, 17, 40, random));
  all.push_back(power_law_graph("power law", 20, 40, true, random));
  all.push_back(power_law_graph("unsorted degrees", 20, 40, false, random));
  return all;
}

}  // namespace frontgi::test
