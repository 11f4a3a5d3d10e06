# SPDX-License-Identifier: MIT
"""The multiply-add peak of this machine: what no dense kernel can pass.

Idea: independent accumulators in registers, as many as hide the latency, nothing else in the loop; one process a
thread, all at once, each timed by its own CPU time, so that a busy machine does not lower the result. A few lines of C
are compiled for the very CPU (only here: the library itself is never built that way).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = r"""
#include <stdio.h>
#include <time.h>
#if defined(__AVX512F__)
enum { BYTES = 64, COUNT = 16 };  /* of 32 registers */
#elif defined(__AVX__)
enum { BYTES = 32, COUNT = 12 };  /* of 16: two hold the constants */
#else
enum { BYTES = 16, COUNT = 12 };
#endif
typedef float vec __attribute__((vector_size(BYTES)));

int main(int argc, char **argv) {
  const long rounds = 20000000;
  vec sum[COUNT], factor, addend;
  for (int lane = 0; lane < BYTES / 4; lane++) factor[lane] = 0.999f, addend[lane] = 0.001f * argc;
  for (int i = 0; i < COUNT; i++) sum[i] = factor * (float)i;
  double best = 0;
  for (int repeat = 0; repeat < 3; repeat++) {
    const clock_t start = clock();
    for (long round = 0; round < rounds; round++) {
#pragma GCC unroll 16
      for (int i = 0; i < COUNT; i++) sum[i] = sum[i] * factor + addend;
    }
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    const double rate = 2.0 * rounds * COUNT * (BYTES / 4) / seconds;
    best = rate > best ? rate : best;
  }
  vec total = sum[0];
  for (int i = 1; i < COUNT; i++) total += sum[i];
  fprintf(stderr, "%g\n", total[0]);  /* or the loops would be dropped */
  printf("%.17g\n", best);
}
"""


def multiply_add_peak(threads: int) -> float | None:
    """Returns float32 operations a second on ``threads`` cores; :obj:`None` without a C compiler."""
    with TemporaryDirectory(prefix="frontgi-peak-") as folder:
        program = Path(folder) / "peak"
        compiler = os.environ.get("CC", "cc").split()
        options = ["-O3", "-march=native", "-ffp-contract=fast", "-x", "c", "-", "-o", str(program)]
        try:
            subprocess.run([*compiler, *options], input=SOURCE, text=True, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        running = [
            subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for _ in range(threads)
        ]
        return sum(float(process.communicate()[0]) for process in running)
