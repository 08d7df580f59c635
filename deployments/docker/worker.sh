# Start a Prefect worker on a Ray node without CPUs: flows and their tasks connect through this node, and Ray Data puts no
# work there. RAY_ADDRESS names the cluster. If the node or the worker ends, the container ends, so that a restart brings
# both; their flow runs restart by themselves. On SIGTERM the worker stops its runs.
set -eu

ray start --address="$RAY_ADDRESS" --num-cpus=0 --num-gpus=0 --object-store-memory=500000000 \
    --metrics-export-port=8090 --block &
prefect worker start --pool overnight --type process --with-healthcheck &
worker=$!

trap 'kill -TERM $worker; wait $worker; exit 0' TERM INT
wait -n || true
echo "the Ray node or the Prefect worker ended, so the container ends" >&2
exit 1
