# A Prefect worker on a Ray node of its own that offers no CPUs: flows and their tasks connect through it, and no work of
# Ray Data lands beside them. RAY_ADDRESS: the cluster to join. If either ends, both do, so that whoever restarts the
# container gets a whole one; the flow runs that it had start again by themselves. SIGTERM lets the worker stop its runs.
set -eu

ray start --address="$RAY_ADDRESS" --num-cpus=0 --num-gpus=0 --object-store-memory=500000000 \
    --metrics-export-port=8090 --block &
prefect worker start --pool overnight --type process --with-healthcheck &
worker=$!

trap 'kill -TERM $worker; wait $worker; exit 0' TERM INT
wait -n || true
echo "the Ray node or the Prefect worker ended: the container ends with it" >&2
exit 1
