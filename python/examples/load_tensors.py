# SPDX-License-Identifier: BSD-2-Clause
"""Load the arrays of a model from ordinary memory to a GPU, and one back.

pinion.cuda.copy() takes NumPy arrays, torch tensors and whatever has
`__cuda_array_interface__` (CuPy, Numba). With torch,
`weights = pinion.cuda.to_device(array)` would do, or
`with pinion.cuda.accelerate():` around code that calls .cuda(). Here the memory
of the GPU comes from the driver itself, so that nothing but NumPy is needed.

    python3 load_tensors.py
"""

import ctypes
import sys

import pinion
import pinion.cuda

import numpy


class Gpu:
    """The first GPU, by the driver's own calls."""

    def __init__(self):
        try:
            self.driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            print("skipped: no NVIDIA driver here (libcuda.so.1)")
            sys.exit(77)
        context = ctypes.c_void_p()
        self.must("cuInit", 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)

    def must(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result:
            sys.exit(f"{name}: error {result}")


class GpuArray:
    """Memory of the GPU with a shape, as CuPy and others have it."""

    def __init__(self, gpu, shape, dtype):
        dtype = numpy.dtype(dtype)
        nbytes = int(numpy.prod(shape)) * dtype.itemsize
        address = ctypes.c_uint64()
        gpu.must("cuMemAlloc_v2", ctypes.byref(address),
                 ctypes.c_size_t(nbytes))
        self.gpu, self.address = gpu, address
        self.__cuda_array_interface__ = {
            "version": 3, "shape": shape, "typestr": dtype.str,
            "data": (address.value, False), "strides": None}

    def free(self):
        self.gpu.must("cuMemFree_v2", self.address)


def main():
    gpu = Gpu()
    model = {f"layer {k}": numpy.full((256, 1024), k, "float32")
             for k in range(20)}
    try:
        pinion.cuda.context()
    except pinion.Error as error:
        print(f"skipped: {error}")
        sys.exit(77)
    loaded = {}
    for name, array in model.items():
        loaded[name] = GpuArray(gpu, array.shape, array.dtype)
        pinion.cuda.copy(loaded[name], array)
    back = numpy.zeros((256, 1024), "float32")
    for name, array in model.items():
        pinion.cuda.copy(back, loaded[name])
        assert (back == array).all(), name
        loaded[name].free()
    moved = sum(a.nbytes for a in model.values())
    print(f"{len(model)} arrays, {moved >> 20} MiB there and back")
    print(pinion.cuda.stats())


if __name__ == "__main__":
    main()
