// Cotangents of roots, taken back through the steps of a chunk. `i` counts steps and sequences: step × batch + sequence.

// Unit by unit: each link is a row of ∂(new)/∂(old). `c` (roots, steps × batch, width) holds the cotangents that come from
// the outputs and takes those of later steps; `first` (roots, batch, width) takes those of the state before the chunk.
extern "C" void adjoint_rows(int64_t steps, int64_t batch, int64_t width, int64_t links, const int64_t* news,
                             const int64_t* olds, real* const* rows, const int64_t* item_strides,
                             const int64_t* unit_strides, real* c, int64_t root_stride, real* first) {
  for (int64_t k = steps - 1; k >= 0; --k)
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t i = k * batch + b;
      for (int64_t l = 0; l < links; ++l) {
        const real* const from = c + news[l] * root_stride + i * width;
        real* const to = k ? c + olds[l] * root_stride + (i - batch) * width : first + (olds[l] * batch + b) * width;
        const Row row{rows[l] + i * item_strides[l], unit_strides[l]};
        COLUMNS_OF(width) add_row(to + j, load(from + j, count) * row.get(j, count), count);
      }
    }
}

// In full: ∂(roots)/∂s is a matrix (rows, n) per step and sequence. `c` (steps × batch, rows), `first` (batch, n).
extern "C" void adjoint_matrices(int64_t steps, int64_t batch, int64_t rows, int64_t n, const real* jacobian,
                                 int64_t stride, real* c, real* first) {
  for (int64_t k = steps - 1; k >= 0; --k)
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t i = k * batch + b;
      real* const to = k ? c + (i - batch) * rows : first + b * n;  // the first n roots are the state
      for (int64_t r = 0; r < rows; ++r) {
        const real factor = c[i * rows + r];
        if (factor != 0) add_scaled(to, jacobian + i * stride + r * n, factor, n);
      }
    }
}
