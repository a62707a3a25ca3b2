"""GPU kernels without a GPU: compile to PTX and cubin, execute the PTX on the CPU, count what it moves."""
