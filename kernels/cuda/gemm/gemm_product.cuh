#pragma once

#include <bit>

#include "shale/kernels/cuda/gemm/gemm_tile.cuh"

namespace shale::kernels::SHALE_BACKEND {

// The matmul of a warp: c [kWarpRows, kWarpCols] += a b over tiles in shared memory, kStep of k at
// a time. Fragments are the registers of a and b for one step. They are loaded separately from the
// multiplication, so that with two sets (kSets) the loads of one step overlap the multiplication of
// the step before.
//
//   load(fragments, a, b, step)   loads step `step` of the tiles of a stage
//   multiply(fragments)
//   store(to, ld)                 stores the sums, row-major, to the warp's part of an f32 matrix

// Common part of tensor-core matmuls of all dtypes: sums, and operands with lines along k. A
// step takes two 16-byte chunks of a line. See kernels/simt/matrix.h for the layout of fragments.
template <class Config>
class WarpProduct {
 protected:
  static constexpr int kRowTiles = Config::kWarpRows / 16, kColTiles = Config::kWarpCols / 8;
  static_assert(kColTiles % 2 == 0, "ldmatrix.x4 loads two column tiles of b");

 public:
  static constexpr int kSets = 2;
  struct Fragments {
    uint32_t a[kRowTiles][4];
    uint32_t b[kColTiles][2];
  };

  __device__ __forceinline__ WarpProduct(int warp_row, int warp_col)
      : warp_row_(warp_row), warp_col_(warp_col), lane_(static_cast<int>(threadIdx.x) % kWarpSize) {
#pragma unroll
    for (auto& row : sums_) {
#pragma unroll
      for (auto& tile : row) {
#pragma unroll
        for (float& sum : tile) sum = 0;
      }
    }
  }

  __device__ __forceinline__ void store(float* to, int ld) const {
    const int group = lane_ / 4, t = lane_ % 4;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColTiles; ++j) {
        float* top = to + (warp_row_ + 16 * i + group) * ld + warp_col_ + 8 * j + 2 * t;
        store_shared_floats(top, Floats<2>{sums_[i][j][0], sums_[i][j][1]});
        store_shared_floats(top + 8 * ld, Floats<2>{sums_[i][j][2], sums_[i][j][3]});
      }
    }
  }

 protected:
  // For ldmatrix, lanes 8 i to 8 i + 7 provide the row addresses of the i-th of four 8x8 matrices.
  __device__ __forceinline__ int in_matrix() const { return lane_ % 8; }
  __device__ __forceinline__ int odd() const { return lane_ / 8 % 2; }
  __device__ __forceinline__ int high() const { return lane_ / 16; }

  template <class ATile>
  __device__ __forceinline__ void load_a_along_k(Fragments& f, const typename ATile::Element* a,
                                                 int step) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = warp_row_ + 16 * i + in_matrix() + 8 * odd();
      ldmatrix<4>(f.a[i], a + ATile::offset(row, 2 * step + high()));
    }
  }
  template <class BTile>
  __device__ __forceinline__ void load_b_along_k(Fragments& f, const typename BTile::Element* b,
                                                 int step) const {
#pragma unroll
    for (int j = 0; j < kColTiles; j += 2) {
      const int col = warp_col_ + 8 * j + in_matrix() + 8 * high();
      uint32_t pair[4];
      ldmatrix<4>(pair, b + BTile::offset(col, 2 * step + odd()));
      set_b(f, j, pair);
    }
  }
  __device__ __forceinline__ static void set_b(Fragments& f, int j, const uint32_t (&pair)[4]) {
    f.b[j][0] = pair[0], f.b[j][1] = pair[1];
    f.b[j + 1][0] = pair[2], f.b[j + 1][1] = pair[3];
  }

  int warp_row_, warp_col_, lane_;
  float sums_[kRowTiles][kColTiles][4];
};

// The matmul of a warp for T = bf16 or f16, on tensor cores.
template <class Config, class ATile, class BTile>
class TensorProduct : public WarpProduct<Config> {
  using T = typename ATile::Element;
  using Base = WarpProduct<Config>;
  using Base::kColTiles, Base::kRowTiles, Base::sums_, Base::warp_col_, Base::warp_row_;

 public:
  static constexpr int kStep = 16;
  using typename Base::Fragments;
  using Base::Base;

  __device__ __forceinline__ void load(Fragments& f, const T* a, const T* b, int step) const {
    if constexpr (ATile::kAlongK) {
      this->template load_a_along_k<ATile>(f, a, step);
    } else {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const int k = 16 * step + this->in_matrix() + 8 * this->high();
        ldmatrix<4, true>(f.a[i], a + ATile::offset(k, (warp_row_ + 16 * i) / 8 + this->odd()));
      }
    }
    if constexpr (BTile::kAlongK) {
      this->template load_b_along_k<BTile>(f, b, step);
    } else {
#pragma unroll
      for (int j = 0; j < kColTiles; j += 2) {
        const int k = 16 * step + this->in_matrix() + 8 * this->odd();
        uint32_t pair[4];
        ldmatrix<4, true>(pair, b + BTile::offset(k, (warp_col_ + 8 * j) / 8 + this->high()));
        this->set_b(f, j, pair);
      }
    }
  }

  __device__ __forceinline__ void multiply(const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColTiles; ++j) mma_m16n8k16<T>(sums_[i][j], f.a[i], f.b[j]);
    }
  }
};

// The matmul of a warp for tf32, on tensor cores. f32 operands are rounded to tf32 after they are
// read from shared memory. ldmatrix moves an element as two 16-bit halves, which it cannot
// transpose, so lines across k are read element by element.
template <class Config, class ATile, class BTile>
class Tf32Product : public WarpProduct<Config> {
  using Base = WarpProduct<Config>;
  using Base::kColTiles, Base::kRowTiles, Base::lane_, Base::sums_, Base::warp_col_,
      Base::warp_row_;

 public:
  static constexpr int kStep = 8;
  using typename Base::Fragments;
  using Base::Base;

  __device__ __forceinline__ void load(Fragments& f, const float* a, const float* b,
                                       int step) const {
    const int group = lane_ / 4, k = kStep * step + lane_ % 4;
    if constexpr (ATile::kAlongK) {
      this->template load_a_along_k<ATile>(f, a, step);
    } else {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          f.a[i][e] = bits_at<ATile>(a, k + e / 2 * 4, warp_row_ + 16 * i + group + e % 2 * 8);
        }
      }
    }
    if constexpr (BTile::kAlongK) {
      this->template load_b_along_k<BTile>(f, b, step);
    } else {
#pragma unroll
      for (int j = 0; j < kColTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          f.b[j][e] = bits_at<BTile>(b, k + e * 4, warp_col_ + 8 * j + group);
        }
      }
    }
    round(f.a);
    round(f.b);
  }

  __device__ __forceinline__ void multiply(const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColTiles; ++j) mma_m16n8k8_tf32(sums_[i][j], f.a[i], f.b[j]);
    }
  }

 private:
  template <class Tile>
  static __device__ __forceinline__ uint32_t bits_at(const float* tile, int k, int outer) {
    return std::bit_cast<uint32_t>(tile[Tile::offset(k, outer / 4) + outer % 4]);
  }
  template <int kTiles, int kCount>
  static __device__ __forceinline__ void round(uint32_t (&tiles)[kTiles][kCount]) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (uint32_t& bits : tile) bits = to_tf32(std::bit_cast<float>(bits));
    }
  }
};

// The matmul of a warp in f32, by FMAs in order of k; used unless tf32 is requested. Lanes form a
// grid of 4 rows and 8 columns. A step is 4 elements of k. If the operand's lines run along k, they
// are one 16-byte load. Otherwise a load has 4 rows of a (columns of b), and a lane's rows are in
// groups of four neighbours. There is one set of fragments, because two would not fit the
// registers. The 128 or 256 FMAs of a step, and other warps, hide the latency of the loads.
template <class Config, class ATile, class BTile>
class FmaProduct {
  static constexpr int kLaneRows = 4, kLaneCols = 8;
  static constexpr int kRows = Config::kWarpRows / kLaneRows;  // rows per lane
  static constexpr int kCols = Config::kWarpCols / kLaneCols;

 public:
  static constexpr int kStep = 4, kSets = 1;
  struct Fragments {
    float a[kRows][kStep];
    float b[kCols][kStep];
  };

  __device__ __forceinline__ FmaProduct(int warp_row, int warp_col)
      : warp_row_(warp_row), warp_col_(warp_col) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    lane_row_ = lane / kLaneCols, lane_col_ = lane % kLaneCols;
#pragma unroll
    for (auto& row : sums_) {
#pragma unroll
      for (float& sum : row) sum = 0;
    }
  }

  __device__ __forceinline__ void load(Fragments& f, const float* a, const float* b,
                                       int step) const {
    load_operand<ATile, kLaneRows>(f.a, a, warp_row_, lane_row_, step);
    load_operand<BTile, kLaneCols>(f.b, b, warp_col_, lane_col_, step);
  }

  __device__ __forceinline__ void multiply(const Fragments& f) {
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) sums_[i][j] = fmaf(f.a[i][k], f.b[j][k], sums_[i][j]);
      }
    }
  }

  __device__ __forceinline__ void store(float* to, int ld) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j) {
        to[(warp_row_ + place<ATile, kLaneRows>(lane_row_, i)) * ld + warp_col_ +
           place<BTile, kLaneCols>(lane_col_, j)] = sums_[i][j];
      }
    }
  }

 private:
  // Returns which row (or column) of the warp's tile is number i of this lane's rows (columns).
  template <class Tile, int kLanes>
  static __device__ __forceinline__ int place(int lane, int i) {
    return Tile::kAlongK ? lane + kLanes * i : 4 * (lane + kLanes * (i / 4)) + i % 4;
  }

  template <class Tile, int kLanes, int kCount>
  static __device__ __forceinline__ void load_operand(float (&f)[kCount][kStep], const float* tile,
                                                      int first, int lane, int step) {
    if constexpr (Tile::kAlongK) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const Pack<float> pack = load_pack(tile + Tile::offset(first + lane + kLanes * i, step));
#pragma unroll
        for (int k = 0; k < kStep; ++k) f[i][k] = pack.at[k];
      }
    } else {
#pragma unroll
      for (int k = 0; k < kStep; ++k) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const Pack<float> pack =
              load_pack(tile + Tile::offset(kStep * step + k, first / 4 + lane + kLanes * (i / 4)));
#pragma unroll
          for (int e = 0; e < 4; ++e) f[i + e][k] = pack.at[e];
        }
      }
    }
  }

  int warp_row_, warp_col_, lane_row_, lane_col_;
  float sums_[kRows][kCols];
};

}  // namespace shale::kernels::SHALE_BACKEND
