// Linear chains: sums, maxima and derivatives over all paths y_1 … y_L of
//   exp(start[y_1] + Σ_t f[t][y_t] + Σ_{t>1} A[y_{t-1}][y_t] + end[y_L]).
//
// REAL is float or double. Scores stay logarithms; inside a step they are probabilities, so that one step takes K
// exponentials, a product with exp(A) and K logarithms. A state whose sum is too small for that to be exact (all its
// predecessors are nearly impossible) is summed again in logarithms. Rows are padded to a multiple of PAD states.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cmath>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef REAL real;
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
constexpr bool single = sizeof(real) == 4;
constexpr int64_t W = BYTES / sizeof(real), PAD = 16;
template <bool> struct integers { typedef int32_t type; };
template <> struct integers<false> { typedef int64_t type; };
typedef integers<single>::type whole;
typedef real vec __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));
typedef whole ivec __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));
#define INLINE static inline __attribute__((always_inline))

constexpr real NEVER = real(-1e30);
// What a sum lost by underflow is below K times the smallest normal number: negligible beside this.
constexpr real TINY = single ? real(1e-28) : real(1e-280);

INLINE vec splat(real x) { return x - vec{}; }
INLINE vec& at(real* p) { return *(vec*)p; }
INLINE const vec& at(const real* p) { return *(const vec*)p; }

// ------------------------------------------------------------------------------------------ mathematics

INLINE vec power(ivec n) { return single ? (vec)((n + 127) << 23) : (vec)((n + 1023) << 52); }

INLINE vec exp_(vec x) {  // of x <= 0: 2^n e^r, e^r by its series; below the smallest normal number it is zero
  const vec low = splat(single ? real(-87) : real(-708));
  const ivec none = x < low;
  x = none ? low : x;
  const real magic = single ? real(12582912) : real(6755399441055744);  // 1.5 · 2^(bits of the fraction)
  const vec n = x * real(1.4426950408889634074) + magic - magic;
  const vec r = (x - n * real(single ? 0.693359375 : 6.93147180369123816490e-01)) -
                n * real(single ? -2.12194440054690583e-4 : 1.90821492927058770002e-10);
  constexpr int terms = single ? 7 : 13;
  vec y = splat(1);
#pragma GCC unroll 13
  for (int i = terms; i > 0; --i) y = y * r * (real(1) / real(i)) + real(1);
  y = y * power(__builtin_convertvector(n, ivec));
  return none ? splat(0) : y;
}

INLINE vec log_(vec x) {  // of normal x > 0: log(2^n m) = n log 2 + 2 atanh((m - 1) / (m + 1)), m around 1
  constexpr int fraction = single ? 23 : 52, bias = single ? 127 : 1023;
  constexpr whole one = whole(bias) << fraction, mask = (whole(1) << fraction) - 1;
  const ivec bits = (ivec)x;
  ivec n = (bits >> fraction) - bias;
  vec m = (vec)((bits & mask) | one);
  const ivec big = m > splat(real(1.41421356237309504880));
  m = big ? m * real(0.5) : m;
  n -= big;  // a true comparison is -1
  const vec s = (m - real(1)) / (m + real(1)), z = s * s;
  constexpr int terms = single ? 5 : 11;
  vec y = splat(0);
#pragma GCC unroll 11
  for (int i = terms; i > 0; --i) y = y * z + real(1) / real(2 * i + 1);
  const vec k = __builtin_convertvector(n, vec);
  return k * real(single ? 0.693359375 : 6.93147180369123816490e-01) +
         (k * real(single ? -2.12194440054690583e-4 : 1.90821492927058770002e-10) + real(2) * s * (y * z) + real(2) * s);
}

INLINE real highest(const real* x, int64_t width) {
  vec top = at(x);
  for (int64_t i = W; i < width; i += W) top = at(x + i) > top ? at(x + i) : top;
  real best = top[0];
  for (int i = 1; i < W; ++i) best = top[i] > best ? top[i] : best;
  return best;
}

// ------------------------------------------------------------------------------------------ the chain

struct Chain {
  int64_t steps, batch, states, threads;
  const real *emissions, *transitions, *start, *end;  // (T, B, K), (K, K) from → to, (K,), (K,)
  const int64_t* lengths;                             // (B,)
};

static int64_t padded(int64_t states) { return (states + PAD - 1) / PAD * PAD; }

struct Pack {  // what all sequences share
  int64_t states, width;
  real *scores, *weights, *turned, *top, *start, *end, *filler;

  Pack(const Chain& c) : states(c.states), width(padded(c.states)) {
    const int64_t rows = 3 * states + 4;
    scores = (real*)malloc(sizeof(real) * rows * width);
    weights = scores + states * width, turned = weights + states * width, top = turned + states * width;
    start = top + width, end = start + width, filler = end + width;
    for (int64_t i = 0; i < rows * width; ++i) scores[i] = 0;
    for (int64_t k = 0; k < width; ++k) {
      const bool real_state = k < states;
      start[k] = real_state ? c.start[k] : NEVER;
      end[k] = real_state ? c.end[k] : NEVER;
      filler[k] = real_state ? 0 : 1;
      top[k] = NEVER;
      for (int64_t j = 0; j < states; ++j) {
        const real a = real_state ? c.transitions[j * states + k] : NEVER;
        scores[j * width + k] = a;
        top[k] = a > top[k] ? a : top[k];
      }
      for (int64_t j = 0; real_state && j < states; ++j)
        weights[j * width + k] = turned[k * width + j] = std::exp(scores[j * width + k] - top[k]);
    }
  }
  ~Pack() { free(scores); }
};

INLINE void read_row(const Chain& c, int64_t t, int64_t b, real* row) {
  memcpy(row, c.emissions + (t * c.batch + b) * c.states, sizeof(real) * c.states);
}

// p = exp(α - m), s = p · exp(A - top): the two rows a step forward and a step back need; gives m.
INLINE real spread(const Pack& k, const real* alpha, real* p, real* s) {
  const real m = highest(alpha, k.width);
  for (int64_t i = 0; i < k.width; i += W) at(p + i) = exp_(at(alpha + i) - m);
  for (int64_t i = 0; i < k.width; i += W) {
    vec sum = at(k.filler + i);
    for (int64_t j = 0; j < k.states; ++j) sum += p[j] * at(k.weights + j * k.width + i);
    at(s + i) = sum;
  }
  return m;
}

INLINE bool all_large(const real* s, int64_t width) {
  ivec small = {};
  for (int64_t i = 0; i < width; i += W) small |= ~(at(s + i) >= splat(TINY));
  whole any = 0;
  for (int i = 0; i < W; ++i) any |= small[i];
  return !any;
}

static real exactly(const Pack& k, const real* alpha, int64_t to) {  // log Σ_j exp(α_j + A[j][to])
  real best = -INFINITY, sum = 0;
  for (int64_t j = 0; j < k.states; ++j) best = std::fmax(best, alpha[j] + k.scores[j * k.width + to]);
  if (best == -INFINITY) return best;
  for (int64_t j = 0; j < k.states; ++j) sum += std::exp(alpha[j] + k.scores[j * k.width + to] - best);
  return best + std::log(sum);
}

static real total(const Pack& k, const real* alpha) {  // log Σ_j exp(α_j + end_j)
  real best = -INFINITY, sum = 0;
  for (int64_t j = 0; j < k.states; ++j) best = std::fmax(best, alpha[j] + k.end[j]);
  if (best == -INFINITY) return best;
  for (int64_t j = 0; j < k.states; ++j) sum += std::exp(alpha[j] + k.end[j] - best);
  return best + std::log(sum);
}

// ------------------------------------------------------------------------------------------ forward

// Each α is kept relative to the greatest of the step before: small numbers lose less in rounding.
static double forward(const Chain& c, const Pack& k, int64_t b, real* alphas, real* room) {
  double taken = 0;
  real *p = room, *s = p + k.width, *f = s + k.width;
  const int64_t stride = c.batch * k.width;
  real* alpha = alphas + b * k.width;
  for (int64_t i = c.states; i < k.width; ++i) f[i] = 0;
  read_row(c, 0, b, f);
  for (int64_t i = 0; i < k.width; i += W) at(alpha + i) = at(k.start + i) + at(f + i);
  for (int64_t t = 1; t < c.lengths[b]; ++t, alpha += stride) {
    real* next = alpha + stride;
    const real m = spread(k, alpha, p, s);
    taken += m;
    read_row(c, t, b, f);
    const bool large = all_large(s, k.width);
    for (int64_t i = 0; i < k.width; i += W) {
      const vec sum = at(s + i), safe = sum < splat(TINY) ? splat(1) : sum;
      at(next + i) = log_(safe) + at(k.top + i) + at(f + i);
    }
    for (int64_t i = 0; !large && i < c.states; ++i)
      if (!(s[i] >= TINY)) next[i] = exactly(k, alpha, i) - m + f[i];
  }
  return taken + total(k, alpha);
}

static double score(const Chain& c, const Pack& k, int64_t b, const int64_t* tags) {
  const int64_t length = c.lengths[b];
  double sum = 0;
  int64_t before = tags[b];
  sum += c.start[before] + c.emissions[b * c.states + before];
  for (int64_t t = 1; t < length; ++t) {
    const int64_t tag = tags[t * c.batch + b];
    sum += k.scores[before * k.width + tag] + c.emissions[(t * c.batch + b) * c.states + tag];
    before = tag;
  }
  return sum + c.end[before];
}

// ------------------------------------------------------------------------------------------ backward

struct Gradient {
  real *emissions;                  // (T, B, K), zero at first
  real *outer, *direct, *start, *end;  // of one thread: (K, width) twice, (width,) twice
};

// One step back: from the probabilities of the states at t to those at t - 1, and the pairs between them.
INLINE void back(const Pack& k, const real* alpha, const real* gamma, real g, const Gradient& d, real* before,
                 real* room) {
  real *p = room, *s = p + k.width, *q = s + k.width;
  spread(k, alpha, p, s);
  for (int64_t i = 0; i < k.width; i += W) {
    const ivec small = at(s + i) < splat(TINY);
    at(q + i) = small ? splat(0) : at(gamma + i) / at(s + i);
  }
  for (int64_t i = 0; i < k.width; i += W) {
    vec sum = {};
    for (int64_t j = 0; j < k.states; ++j) sum += q[j] * at(k.turned + j * k.width + i);
    at(before + i) = at(p + i) * sum;
  }
  for (int64_t j = 0; j < k.states; ++j) {
    const real weight = g * p[j];
    for (int64_t i = 0; i < k.width; i += W) at(d.outer + j * k.width + i) += weight * at(q + i);
  }
  if (all_large(s, k.width)) return;
  for (int64_t i = 0; i < k.states; ++i) {
    if (s[i] >= TINY || !(gamma[i] > 0)) continue;
    const real sum = exactly(k, alpha, i);
    for (int64_t j = 0; j < k.states; ++j) {
      const real pair = gamma[i] * std::exp(alpha[j] + k.scores[j * k.width + i] - sum);
      before[j] += pair;
      d.direct[j * k.width + i] += g * pair;
    }
  }
}

static void backward(const Chain& c, const Pack& k, int64_t b, const real* alphas, real g, const Gradient& d,
                     real* room) {
  const int64_t length = c.lengths[b], stride = c.batch * k.width;
  real *gamma = room, *before = gamma + k.width;
  const real* alpha = alphas + (length - 1) * stride + b * k.width;
  const real sum = total(k, alpha);
  for (int64_t i = 0; i < k.width; ++i) {
    gamma[i] = i < k.states ? std::exp(alpha[i] + k.end[i] - sum) : 0;
    d.end[i] += g * gamma[i];
  }
  for (int64_t t = length - 1;; --t, alpha -= stride) {
    real* out = d.emissions + (t * c.batch + b) * c.states;
    for (int64_t i = 0; i < c.states; ++i) out[i] = g * gamma[i];
    if (t == 0) break;
    back(k, alpha - stride, gamma, g, d, before, room + 2 * k.width);
    real* swap = gamma;
    gamma = before, before = swap;
  }
  for (int64_t i = 0; i < c.states; ++i) d.start[i] += g * gamma[i];
}

static void subtract_path(const Chain& c, const Pack& k, int64_t b, const int64_t* tags, real g, const Gradient& d) {
  int64_t before = tags[b];
  d.start[before] -= g;
  d.emissions[b * c.states + before] -= g;
  for (int64_t t = 1; t < c.lengths[b]; ++t) {
    const int64_t tag = tags[t * c.batch + b];
    d.emissions[(t * c.batch + b) * c.states + tag] -= g;
    d.direct[before * k.width + tag] -= g;
    before = tag;
  }
  d.end[before] -= g;
}

// ------------------------------------------------------------------------------------------ the best path

static real best_path(const Chain& c, const Pack& k, int64_t b, int64_t* path, whole* from, real* room) {
  real *delta = room, *next = delta + k.width, *f = next + k.width;
  const int64_t length = c.lengths[b];
  for (int64_t i = c.states; i < k.width; ++i) f[i] = 0;
  read_row(c, 0, b, f);
  for (int64_t i = 0; i < k.width; i += W) at(delta + i) = at(k.start + i) + at(f + i);
  for (int64_t t = 1; t < length; ++t) {
    read_row(c, t, b, f);
    for (int64_t i = 0; i < k.width; i += W) {
      vec best = delta[0] + at(k.scores + i);
      ivec origin = {};
      for (int64_t j = 1; j < k.states; ++j) {
        const vec candidate = delta[j] + at(k.scores + j * k.width + i);
        const ivec better = candidate > best;
        best = better ? candidate : best;
        origin = better ? (ivec{} + whole(j)) : origin;
      }
      at(next + i) = best + at(f + i);
      *(ivec*)(from + t * k.width + i) = origin;
    }
    real* swap = delta;
    delta = next, next = swap;
  }
  int64_t state = 0;
  for (int64_t i = 1; i < c.states; ++i) state = delta[i] + k.end[i] > delta[state] + k.end[state] ? i : state;
  const real value = delta[state] + k.end[state];
  for (int64_t t = length - 1;; --t) {
    path[t * c.batch + b] = state;
    if (t == 0) return value;
    state = from[t * k.width + state];
  }
}

// ------------------------------------------------------------------------------------------ entries

template <class Work> static void shared(int64_t threads, Work work) {
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
    work(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  work(0, 1);
}

// values[b] = log of the sum over all paths; where tags are given, less the score of theirs: minus its log-likelihood.
extern "C" void chain_forward(const Chain* c, const int64_t* tags, real* alphas, real* values) {
  const Pack k(*c);
  shared(c->threads, [&](int64_t me, int64_t all) {
    real* room = (real*)malloc(sizeof(real) * 3 * k.width);
    for (int64_t b = me; b < c->batch; b += all) {
      const double sum = forward(*c, k, b, alphas, room);
      values[b] = tags ? sum - score(*c, k, b, tags) : sum;
    }
    free(room);
  });
}

// The derivative of Σ_b g[b] values[b]; d_transitions, d_start and d_end are written, d_emissions is zero at first.
extern "C" void chain_backward(const Chain* c, const int64_t* tags, const real* alphas, const real* g,
                               real* d_emissions, real* d_transitions, real* d_start, real* d_end) {
  const Pack k(*c);
  const int64_t size = (2 * k.states + 2) * k.width;
  real* sums = (real*)calloc(c->threads * size, sizeof(real));
  shared(c->threads, [&](int64_t me, int64_t all) {
    real* room = (real*)malloc(sizeof(real) * 5 * k.width);
    real* mine = sums + me * size;
    const Gradient d = {d_emissions, mine, mine + k.states * k.width, mine + 2 * k.states * k.width,
                        mine + (2 * k.states + 1) * k.width};
    for (int64_t b = me; b < c->batch; b += all) {
      backward(*c, k, b, alphas, g[b], d, room);
      if (tags) subtract_path(*c, k, b, tags, g[b], d);
    }
    free(room);
  });
  for (int64_t j = 0; j < k.states; ++j) {
    d_start[j] = d_end[j] = 0;
    for (int64_t i = 0; i < k.states; ++i) d_transitions[j * k.states + i] = 0;
    for (int64_t thread = 0; thread < c->threads; ++thread) {
      const real* from = sums + thread * size;
      d_start[j] += from[2 * k.states * k.width + j];
      d_end[j] += from[(2 * k.states + 1) * k.width + j];
      for (int64_t i = 0; i < k.states; ++i)
        d_transitions[j * k.states + i] += k.weights[j * k.width + i] * from[j * k.width + i] +
                                           from[(k.states + j) * k.width + i];
    }
  }
  free(sums);
}

extern "C" void chain_best(const Chain* c, int64_t* paths, real* values) {
  const Pack k(*c);
  shared(c->threads, [&](int64_t me, int64_t all) {
    real* room = (real*)malloc(sizeof(real) * 3 * k.width);
    whole* from = (whole*)malloc(sizeof(whole) * c->steps * k.width);
    for (int64_t b = me; b < c->batch; b += all) values[b] = best_path(*c, k, b, paths, from, room);
    free(from);
    free(room);
  });
}
