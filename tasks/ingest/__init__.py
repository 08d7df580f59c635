"""Takes the manifests of a partition's inputs, and reads these inputs."""
