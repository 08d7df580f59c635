from overnight.flows.runs.flow_run import is_run_of_deployment, of_task, stage, task_run_id


def test_outside_of_a_flow_run_there_is_neither_a_deployment_nor_a_task() -> None:
    assert not is_run_of_deployment()
    assert (stage(), task_run_id(), of_task()) == ("plan", None, {})
