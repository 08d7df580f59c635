"""What the cluster has and who gets it: the plan, the planner, bin packing."""
