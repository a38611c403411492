/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the CUDA runtime, linked with it as shared or static library,
 * for legacy or per-thread default streams. It prints what every call returns,
 * the runtime's last error after it, and a sum of the bytes that arrived:
 * check_gpu compares what it prints alone and under `pinion run --cuda`.
 */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB   ((size_t)1 << 20)
#define BYTES (32 * MIB)

static char *host, *back;
static char *there;
static cudaStream_t stream;

static uint64_t sum_of(const char *at, size_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes; i++)
		sum = sum * 31 + (unsigned char)at[i];
	return sum;
}

static void fill(unsigned seed)
{
	for (size_t i = 0; i < BYTES; i++)
		host[i] = (char)((i >> 3) * 2654435761u + seed);
}

/* What the GPU has now, read in small pieces. */
static uint64_t sum_there(void)
{
	uint64_t sum = 0;
	char piece[4096];

	for (size_t i = 0; i < BYTES; i += MIB) {
		cudaMemcpy(piece, there + i, sizeof(piece),
			   cudaMemcpyDeviceToHost);
		sum += sum_of(piece, sizeof(piece));
	}
	return sum;
}

#define SHOW(call)                                             \
	do {                                                   \
		int ret_ = (int)(call);                        \
                                                               \
		printf("%s: %d, last error %d\n", #call, ret_, \
		       (int)cudaGetLastError());               \
	} while (0)

static void copies(void)
{
	for (unsigned i = 0; i < 30; i++) {
		fill(i);
		SHOW(cudaMemcpyAsync(there, host, BYTES, cudaMemcpyHostToDevice,
				     i & 1 ? stream : 0));
		memset(host, 0xee, BYTES);
		SHOW(cudaDeviceSynchronize());
		printf("sum %llx\n", (unsigned long long)sum_there());
		memset(back, 0, BYTES);
		SHOW(cudaMemcpyAsync(back, there, BYTES, cudaMemcpyDeviceToHost,
				     i & 1 ? stream : 0));
		printf("sum %llx\n", (unsigned long long)sum_of(back, BYTES));
	}
	fill(77);
	SHOW(cudaMemcpy(there, host, BYTES, cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy(back, there, BYTES, cudaMemcpyDefault));
	printf("sum %llx\n", (unsigned long long)sum_of(back, BYTES));
	SHOW(cudaMemcpy(back, host + MIB, 4 * MIB, cudaMemcpyHostToHost));
	SHOW(cudaMemcpy2D(there, 1000, host, 4096, 1000, 500,
			  cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy2DAsync(there, MIB, host, MIB, MIB, 8,
			       cudaMemcpyHostToDevice, stream));
	memset(host, 0xee, BYTES);
	SHOW(cudaStreamSynchronize(stream));
	printf("sum %llx\n", (unsigned long long)sum_there());
}

static void host_memory(void)
{
	struct cudaPointerAttributes attributes;
	unsigned flags = 0;
	void *at;

	SHOW(cudaPointerGetAttributes(&attributes, host));
	printf("type %d device %d: %d %d\n", attributes.type, attributes.device,
	       attributes.hostPointer == host, !attributes.devicePointer);
	SHOW(cudaHostUnregister(host));
	SHOW(cudaHostGetFlags(&flags, host));
	SHOW(cudaHostRegister(host + MIB, 8 * MIB, 0));
	SHOW(cudaHostRegister(host + MIB, 8 * MIB, 0));
	SHOW(cudaPointerGetAttributes(&attributes, host + MIB));
	printf("type %d\n", attributes.type);
	SHOW(cudaMemcpyAsync(there, host + MIB, 8 * MIB, cudaMemcpyHostToDevice,
			     stream));
	SHOW(cudaStreamSynchronize(stream));
	SHOW(cudaHostUnregister(host + MIB));
	SHOW(cudaHostAlloc(&at, MIB, 0));
	SHOW(cudaFreeHost(at));
	SHOW(cudaMallocManaged(&at, MIB, cudaMemAttachGlobal));
	SHOW(cudaMemcpy(at, host, MIB, cudaMemcpyDefault));
	SHOW(cudaFree(at));
}

static void captures(void)
{
	cudaStream_t capturing;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	int status;

	SHOW(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
	SHOW(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal));
	SHOW(cudaMemcpyAsync(there, host, MIB, cudaMemcpyHostToDevice,
			     capturing));
	SHOW(cudaMemcpyAsync(back, there, MIB, cudaMemcpyDeviceToHost,
			     capturing));
	SHOW(cudaStreamIsCapturing(capturing,
				   (enum cudaStreamCaptureStatus *)&status));
	printf("status %d\n", status);
	SHOW(cudaStreamEndCapture(capturing, &graph));
	SHOW(cudaGraphInstantiate(&exec, graph, 0));
	for (unsigned i = 0; i < 3; i++) {
		fill(200 + i);
		SHOW(cudaGraphLaunch(exec, capturing));
		SHOW(cudaStreamSynchronize(capturing));
		printf("sum %llx\n", (unsigned long long)sum_of(back, MIB));
	}
	SHOW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	SHOW(cudaMemcpy(there, host, BYTES, cudaMemcpyHostToDevice));
	SHOW(cudaStreamEndCapture(stream, &graph));
	SHOW(cudaMemcpy(there, host, BYTES, cudaMemcpyHostToDevice));
}

static void errors(void)
{
	SHOW(cudaMemcpy(there + BYTES, host, 512 * BYTES,
			cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy(there, host, BYTES, cudaMemcpyDeviceToHost));
	SHOW(cudaMemcpy(there, host, 0, cudaMemcpyHostToDevice));
	SHOW(cudaMemcpy(NULL, host, BYTES, cudaMemcpyHostToDevice));
	SHOW(cudaDeviceReset());
	SHOW(cudaMalloc((void **)&there, BYTES));
	fill(5);
	SHOW(cudaMemcpy(there, host, BYTES, cudaMemcpyHostToDevice));
	printf("sum %llx\n", (unsigned long long)sum_there());
}

int main(void)
{
	host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	back = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(0);
	SHOW(cudaMalloc((void **)&there, BYTES));
	SHOW(cudaStreamCreate(&stream));
	copies();
	host_memory();
	captures();
	errors();
	return 0;
}
