// Elementwise functions of vectors: the C++ of the operation table.
//
// Compiled without -ffast-math, which would flush denormals for the whole process. Comparisons propagate NaN.

INLINE vec pick(ivec yes, vec a, vec b) { return yes ? a : b; }
INLINE vec truth(ivec yes) { return yes ? splat(1) : splat(0); }
INLINE vec maximum(vec a, vec b) { return pick(a != a, a, pick(a < b, b, pick(b != b, b, a))); }
INLINE vec minimum(vec a, vec b) { return pick(a != a, a, pick(a > b, b, pick(b != b, b, a))); }
INLINE vec abs_(vec x) { return (vec)((ivec)x & ~(ivec)splat(-0.0f)); }
INLINE vec copysign_(vec size, vec sign) {
  const ivec bit = (ivec)splat(-0.0f);
  return (vec)(((ivec)size & ~bit) | ((ivec)sign & bit));
}

INLINE vec power_of_two(ivec n) { return single ? (vec)((n + 127) << 23) : (vec)((n + 1023) << 52); }

INLINE vec inverse(vec d) {  // 1 / d; d is a normal number, neither tiny nor huge
#ifdef MASKED
  if constexpr (single) {
    vec r = (vec)__builtin_ia32_rcp14ps512_mask((v16f)d, (v16f){}, 0xffff);
    return r + r * (splat(1) - d * r);
  }
#endif
  return splat(1) / d;
}

INLINE vec at_least(vec x, real low) {  // the instruction returns its second operand if one is NaN
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_maxps512_mask((v16f)splat(low), (v16f)x, (v16f){}, 0xffff, 4);
  else return (vec)__builtin_ia32_maxpd512_mask((v8d)splat(low), (v8d)x, (v8d){}, 0xff, 4);
#else
  return pick(x < splat(low), splat(low), x);
#endif
}

INLINE vec at_most(vec x, real high) {
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_minps512_mask((v16f)splat(high), (v16f)x, (v16f){}, 0xffff, 4);
  else return (vec)__builtin_ia32_minpd512_mask((v8d)splat(high), (v8d)x, (v8d){}, 0xff, 4);
#else
  return pick(x > splat(high), splat(high), x);
#endif
}

INLINE vec between(vec x, real low, real high) { return at_most(at_least(x, low), high); }

// Range reduction e^x = 2^n e^r with |r| <= log(2) / 2. Adding a constant whose last mantissa bit is one rounds x / log(2)
// to the integer n and leaves n plus the exponent bias in the lowest bits: `bits`, shifted up, is 2^n if that is normal.
struct Reduced {
  vec less_one;  // e^r - 1 = r + r² g(r)
  ivec bits;
  vec power() const { return (vec)(bits << (single ? 23 : 52)); }
  ivec n() const { return bits - (ivec)splat(large); }
  static constexpr real large = single ? real(12582912 + 127) : real(6755399441055744 + 1023);
};

template <int sign> INLINE Reduced reduced(vec x) {  // of x, or of -x
  const vec shifted = x * real(sign * 1.4426950408889634074) + Reduced::large;
  const vec n = shifted - Reduced::large;
  vec r, g;
  if constexpr (single) {
    r = (sign < 0 ? -x : x) - n * real(0.693359375);
    r = r - n * real(-2.12194440e-4);
    g = splat(real(0.0013933823000420414));
    g = g * r + real(0.008363295263998496);
    g = g * r + real(0.041666463356065025);
    g = g * r + real(0.1666657628285211);
    g = g * r + real(0.5000000013624704);
  } else {
    r = (sign < 0 ? -x : x) - n * real(6.93147180369123816490e-01);
    r = r - n * real(1.90821492927058770002e-10);
    g = splat(real(1.0 / 6227020800.0 / 14.0));
    const double factorial[] = {2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800.0};
#pragma GCC unroll 12
    for (int i = 11; i >= 0; --i) g = g * r + real(1.0 / factorial[i]);
  }
  return {r + r * r * g, (ivec)shifted};
}

INLINE vec exp_(vec x) {
  const Reduced e = reduced<1>(between(x, single ? -104 : -746, single ? 89 : 710));
  const ivec n = e.n(), half = n >> 1;
  return (splat(1) + e.less_one) * power_of_two(half) * power_of_two(n - half);
}

INLINE vec expm1_(vec x) {
  const Reduced e = reduced<1>(between(x, single ? -30 : -60, single ? 89 : 710));
  const ivec n = e.n(), half = n >> 1;
  const vec q = e.less_one, a = power_of_two(half), b = power_of_two(n - half);
  vec small = q * a * b + (a * b - splat(1)), large = (splat(1) + q) * a * b - splat(1);  // a * b may overflow although the result does not
  return pick(x > splat(40), large, pick(x == splat(0), x, small));
}

INLINE vec sigmoid(vec x) {
  const Reduced e = reduced<-1>(between(x, single ? -87 : -708, single ? 87 : 708));
  const vec p = e.power(), y = inverse(splat(1) + (p + p * e.less_one));
  return pick(x < splat(single ? -88 : -709), splat(0), y);
}

INLINE vec tanh_(vec x) {
  const ivec sign = (ivec)splat(-0.0f);
  const vec a = at_least((vec)((ivec)x | sign), single ? -10 : -20);  // -|x|
  const Reduced e = reduced<1>(a + a);
  const vec p = e.power(), m = p * e.less_one + (p - splat(1));  // e^(-2|x|) - 1
  const vec y = m * inverse(m + splat(2));
  return (vec)(((ivec)y & ~sign) | ((ivec)x & sign));
}

// Functions of the C library, element by element.
#define BY_ELEMENT(name, expression)                \
  INLINE vec name(vec v) {                          \
    vec r = v;                                      \
    for (int i = 0; i < W; ++i) {                   \
      const real x = v[i];                          \
      r[i] = expression;                            \
    }                                               \
    return r;                                       \
  }
BY_ELEMENT(log_one_by_one, single ? __builtin_logf(x) : __builtin_log(x))
BY_ELEMENT(log1p_one_by_one, single ? __builtin_log1pf(x) : __builtin_log1p(x))
BY_ELEMENT(sin_, single ? __builtin_sinf(x) : __builtin_sin(x))
BY_ELEMENT(cos_, single ? __builtin_cosf(x) : __builtin_cos(x))
BY_ELEMENT(erf_, single ? __builtin_erff(x) : __builtin_erf(x))
#define FROM_LIBRARY(name) BY_ELEMENT(name##_, single ? __builtin_##name##f(x) : __builtin_##name(x))
FROM_LIBRARY(tan) FROM_LIBRARY(asin) FROM_LIBRARY(acos) FROM_LIBRARY(atan)
FROM_LIBRARY(sinh) FROM_LIBRARY(cosh) FROM_LIBRARY(asinh) FROM_LIBRARY(acosh) FROM_LIBRARY(atanh)
FROM_LIBRARY(exp2) FROM_LIBRARY(log2) FROM_LIBRARY(log10) FROM_LIBRARY(erfc)

#define OF_TWO(name, function)                                                                        \
  INLINE vec name(vec a, vec b) {                                                                     \
    for (int i = 0; i < W; ++i) a[i] = single ? function##f(a[i], b[i]) : function(a[i], b[i]);       \
    return a;                                                                                         \
  }
OF_TWO(atan2_, __builtin_atan2) OF_TWO(power_, __builtin_pow) OF_TWO(hypot_, __builtin_hypot) OF_TWO(fmod_, __builtin_fmod)

#ifdef MASKED
#define ROUNDING(name, mode, function)                                                                   \
  INLINE vec name(vec v) {                                                                               \
    if constexpr (single) return (vec)__builtin_ia32_rndscaleps_mask((v16f)v, mode, (v16f)v, 0xffff, 4); \
    else return (vec)__builtin_ia32_rndscalepd_mask((v8d)v, mode, (v8d)v, 0xff, 4);                      \
  }
#else
#define ROUNDING(name, mode, function) BY_ELEMENT(name, single ? function##f(x) : function(x))
#endif
ROUNDING(round_, 8, __builtin_rint)  // to even; 8: without exceptions
ROUNDING(floor_, 9, __builtin_floor)
ROUNDING(ceil_, 10, __builtin_ceil)
ROUNDING(trunc_, 11, __builtin_trunc)

INLINE vec integer_(vec x, real bits) {  // a cast to a signed integer; one that is out of range gives the smallest
  const real limit = bits == 32 ? real(2147483648.0) : real(9223372036854775808.0);
  const vec whole = trunc_(x);
  return pick((whole >= splat(-limit)) & (whole < splat(limit)), whole + splat(0), splat(-limit));
}

INLINE vec sqrt_(vec v) {
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_sqrtps512_mask((v16f)v, (v16f){}, 0xffff, 4);
  else return (vec)__builtin_ia32_sqrtpd512_mask((v8d)v, (v8d){}, 0xff, 4);
#else
  for (int i = 0; i < W; ++i) v[i] = single ? __builtin_sqrtf(v[i]) : __builtin_sqrt(v[i]);
  return v;
#endif
}

// x = 2^n m with m in [√½, √2); log(m) by the polynomial of Moshier's Cephes library.
INLINE vec log_(vec x) {
  if constexpr (!single) return log_one_by_one(x);
  const ivec tiny = x < splat(real(1.17549435e-38));
  const ivec bits = (ivec)pick(tiny, x * real(8388608), x), n = (bits - 0x3f3504f3) >> 23;
  const vec f = (vec)(bits - (n << 23)) - splat(1), z = f * f;
  const vec power = __builtin_convertvector(n, vec) - pick(tiny, splat(23), splat(0));
  const real terms[] = {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1};
  vec g = splat(terms[0]);
#pragma GCC unroll 8
  for (int i = 1; i < 9; ++i) g = g * f + terms[i];
  const vec y = f + (f * z * g + power * real(-2.12194440e-4) - real(0.5) * z) + power * real(0.693359375);
  const real infinity = __builtin_inf();
  const vec edge = pick(x == splat(0), splat(-infinity), splat(__builtin_nan("")));
  return pick(x == splat(infinity), x, pick(x > splat(0), y, edge));
}

INLINE vec log1p_(vec x) {  // corrects log(1 + x) for the rounding error of 1 + x
  if constexpr (!single) return log1p_one_by_one(x);
  const vec u = splat(1) + x, lost = x - (u - splat(1));
  const vec y = log_(u);
  return pick(x == splat(0), x, pick((u > splat(0)) & (u < splat(real(1e30))), y + lost / u, y));
}

INLINE vec pow_(vec v, double exponent) {  // in single precision if the exponent has it
  const bool same = single && double(float(exponent)) == exponent;
  for (int i = 0; i < W; ++i) v[i] = same ? __builtin_powf(v[i], exponent) : __builtin_pow(v[i], exponent);
  return v;
}
INLINE vec softplus(vec x) {
  vec e = log1p_(exp_(-abs_(x)));
  return pick(x > splat(0), x + e, pick(x == x, e, x));
}
