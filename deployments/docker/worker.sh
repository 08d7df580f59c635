# Start a Prefect worker on a Ray node without CPUs: flows and their tasks connect through this node, and Ray Data puts no
# work there. RAY_ADDRESS names the cluster. If the node or the worker ends, the container ends, so that a restart brings
# both; their flow runs restart by themselves. On SIGTERM the worker stops its runs.
set -eum # -m: otherwise bash starts background commands with SIGINT ignored, and with it a worker ends on SIGTERM

ray start --address="$RAY_ADDRESS" --num-cpus=0 --num-gpus=0 --object-store-memory=500000000 \
    --metrics-export-port=8090 --block &
node=$!
prefect worker start --pool overnight --type process --with-healthcheck &
worker=$!

stop() { # the worker first, because its runs need the node
    kill -TERM "$worker" && wait "$worker"
    kill -TERM "$node" && wait "$node"
    exit 0
}
trap 'stop || exit 0' TERM INT
wait -n || true
echo "the Ray node or the Prefect worker ended, so the container ends" >&2
exit 1
