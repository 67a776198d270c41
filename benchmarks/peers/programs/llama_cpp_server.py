"""Runs in llama.cpp's environment: `llama_cpp_server.py MODEL.gguf PORT`. 32 requests at once, each of up to 2,048 tokens."""

import os
import signal
import sys

import xllamacpp

AT_ONCE, TOKENS = 32, 2048


def main(model: str, port: int) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = AT_ONCE, AT_ONCE * TOKENS
    params.n_threads_http = 2
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = len(os.sched_getaffinity(0))
    params.ui = False
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)  # the library's own threads would hold up an orderly end


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
