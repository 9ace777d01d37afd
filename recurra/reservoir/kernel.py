"""The loop over time, h ← (1 - aγ) h + γ tanh(W h + drive_t), for a batch; compiled where there is a compiler.

Arrays are (T, N, B), batch innermost, so that one weight multiplies contiguous numbers. `drive` is overwritten by the
states. Without a compiler the loop uses SciPy's sparse product; a mostly dense matrix uses NumPy's.
"""

import ctypes
import functools

import numpy as np
from scipy import sparse

from ..engine.cpu.compiler import BuildError, find_compiler, load

MOSTLY_FULL = 0.5  # density above which a dense matrix product is faster

SOURCE = r"""
#include <cstdint>
#include <cstring>
#include <cmath>

#define LANES 8
typedef double vec __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int64_t ivec __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

// The rational forms of the Cephes library: below 0.625 directly, above through exp; both within about an ulp.
static inline vec tanh8(vec x) {
  const vec zero = {};
  ivec sign = (ivec)x & (ivec)(zero - 0.0), negative = x < zero;
  vec a = negative ? -x : x;
  vec z = a * a;
  vec p = ((-9.64399179425052238628E-1 * z - 9.92877231001918586564E1) * z - 1.61468768441708447952E3);
  vec q = (((z + 1.12811678491632931402E2) * z + 2.23548839060100448583E3) * z + 4.84406305325125486048E3);
  vec small = a + a * z * p / q;
  vec e = a > zero + 20.0 ? zero + 40.0 : 2.0 * a;
  vec magic = zero + 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
  vec n = (1.4426950408889634073599 * e + magic);
  ivec k = (ivec)n - (ivec)magic;
  n = n - magic;
  vec r = e - n * 6.93145751953125E-1 - n * 1.42860682030941723212E-6;
  vec rr = r * r;
  vec top = r * ((1.26177193074810590878E-4 * rr + 3.02994407707441961300E-2) * rr + 9.99999999999999999910E-1);
  vec low = ((3.00198505138664455042E-6 * rr + 2.52448340349684104192E-3) * rr + 2.27265548208155028766E-1) * rr
            + 2.00000000000000000009E0;
  vec exponential = (1.0 + 2.0 * top / (low - top)) * (vec)((k + 1023) << 52);
  vec large = 1.0 - 2.0 / (exponential + 1.0);
  vec y = a < zero + 0.625 ? small : large;
  y = negative ? -y : y;
  return x == x ? y : x;
}

static void squash(double* row, const double* old, int64_t count, const double* leak, int64_t repeat,
                   double decay) {
  for (int64_t i = 0; i < count; i += LANES) {
    int64_t n = count - i < LANES ? count - i : LANES;
    vec a = {}, h = {}, rate = {};
    memcpy(&a, row + i, n * sizeof(double));
    memcpy(&h, old + i, n * sizeof(double));
    for (int64_t j = 0; j < n; j++) rate[j] = leak[(i + j) / repeat];
    vec y = h + rate * (tanh8(a) - decay * h);
    memcpy(row + i, &y, n * sizeof(double));
  }
}

// Four sums at a time, so that an addition need not wait for the one before it.
static inline double dot(const int32_t* column, const double* value, int32_t count, const double* h, int64_t stride) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int32_t k = 0;
  for (; k + 4 <= count; k += 4) {
    s0 += value[k] * h[column[k] * stride];
    s1 += value[k + 1] * h[column[k + 1] * stride];
    s2 += value[k + 2] * h[column[k + 2] * stride];
    s3 += value[k + 3] * h[column[k + 3] * stride];
  }
  for (; k < count; k++) s0 += value[k] * h[column[k] * stride];
  return (s0 + s1) + (s2 + s3);
}

static inline vec dot8(const int32_t* column, const double* value, int32_t count, const double* h, int64_t stride) {
  vec s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int32_t k = 0;
  for (; k + 4 <= count; k += 4) {
    s0 += value[k] * *(const vec*)(h + column[k] * stride);
    s1 += value[k + 1] * *(const vec*)(h + column[k + 1] * stride);
    s2 += value[k + 2] * *(const vec*)(h + column[k + 2] * stride);
    s3 += value[k + 3] * *(const vec*)(h + column[k + 3] * stride);
  }
  for (; k < count; k++) s0 += value[k] * *(const vec*)(h + column[k] * stride);
  return (s0 + s1) + (s2 + s3);
}

// A slice of the batch at a time: its part of h stays in the first-level cache for all rows.
static void product(int64_t N, int64_t B, const int32_t* start, const int32_t* column, const double* value,
                    const double* h, double* out) {
  int64_t b = 0;
  for (; b + LANES <= B; b += LANES)
    for (int64_t i = 0; i < N; i++)
      *(vec*)(out + i * B + b) += dot8(column + start[i], value + start[i], start[i + 1] - start[i], h + b, B);
  for (; b < B; b++)
    for (int64_t i = 0; i < N; i++)
      out[i * B + b] += dot(column + start[i], value + start[i], start[i + 1] - start[i], h + b, B);
}

extern "C" void reservoir(int64_t T, int64_t N, int64_t B, const int32_t* start, const int32_t* column,
                          const double* value, const double* leak, const double* h, double* drive, double decay) {
  for (int64_t t = 0; t < T; t++, h = drive, drive += N * B) {
    product(N, B, start, column, value, h, drive);
    squash(drive, h, N * B, leak, B, decay);
  }
}
"""


def run(W: sparse.csr_array, leak: np.ndarray, h: np.ndarray, drive: np.ndarray, decay: float = 1.0) -> np.ndarray:
    """Replace `drive` (T, N, B) by the states, from h (N, B) on; returns it. `leak` is γ, `decay` a."""
    steps, units, _ = drive.shape
    if not steps:
        return drive
    if W.nnz > MOSTLY_FULL * units * units:
        return _plain(W.toarray(), leak, h, drive, decay)
    function = _compiled()
    if function is None:
        return _plain(W, leak, h, drive, decay)
    h = np.ascontiguousarray(h)
    start, column = (np.ascontiguousarray(a, dtype=np.int32) for a in (W.indptr, W.indices))
    arrays = (start, column, W.data, leak, h, drive)
    function(*drive.shape, *(array.ctypes.data for array in arrays), decay)
    return drive


def _plain(
    W: np.ndarray | sparse.csr_array, leak: np.ndarray, h: np.ndarray, drive: np.ndarray, decay: float = 1.0
) -> np.ndarray:
    for row in drive:
        row += W @ h
        np.tanh(row, out=row)
        row -= decay * h
        row *= leak[:, None]
        row += h
        h = row
    return drive


@functools.cache
def _compiled() -> ctypes._CFuncPtr | None:  # pyrefly: ignore
    if find_compiler() is None:
        return None
    try:
        function = load(SOURCE).reservoir
    except BuildError:
        return None
    function.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 6 + [ctypes.c_double]
    function.restype = None
    return function
