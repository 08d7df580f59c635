"""The cluster's resources and how they are shared: the plan, the planner, bin packing."""
