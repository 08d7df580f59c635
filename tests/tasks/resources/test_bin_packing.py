"""Room on nodes."""

from overnight.tasks.resources.bin_packing import Room


def test_a_worker_needs_all_it_needs_on_one_node():
    assert not Room([{"CPU": 4}, {"GPU": 1}]).take({"CPU": 1, "GPU": 1})
    assert Room([{"CPU": 4}, {"CPU": 1, "GPU": 1}]).take({"CPU": 1, "GPU": 1})
    assert not Room([{"CPU": 1}, {"CPU": 1}]).take({"CPU": 1.5})
    assert not Room([]).take({"CPU": 0.1})


def test_what_is_taken_is_gone_and_a_refusal_takes_nothing():
    room = Room([{"CPU": 2, "memory": 10}])
    assert room.take({"CPU": 1, "memory": 6})
    assert not room.take({"CPU": 1, "memory": 6})
    assert room.take({"CPU": 1, "memory": 4})
    assert not room.take({"CPU": 0.01})


def test_a_fraction_of_a_gpu_comes_from_one_gpu():
    room = Room([{"GPU": 2}])
    assert [room.take({"GPU": 0.6}) for _ in range(3)] == [True, True, False]
    assert room.take({"GPU": 0.4})
    assert not room.take({"GPU": 1})


def test_several_gpus_are_whole_ones():
    room = Room([{"GPU": 3}])
    assert room.take({"GPU": 0.1})
    assert room.take({"GPU": 2})
    assert not room.take({"GPU": 1})


def test_the_largest_go_first():
    nodes = [{"GPU": 2}, {"GPU": 1}]
    assert Room(nodes).take_all([{"GPU": 1}, {"GPU": 2}])
    assert not Room(nodes).take_all([{"GPU": 2}, {"GPU": 2}])
