"""Commands as functions of this process: what a process would have of its own, they have too, and leave nothing."""

import os
import sys
from pathlib import Path

from tests import warm_commands

SHOW = """
import os, sys, helper
print(os.getcwd(), os.environ["GIVEN"], sys.argv[1:], sys.stdin.read().strip(), helper.NAME, flush=True)
os.system("echo a child")
print("an error", file=sys.stderr)
os.environ["LEFT"] = "behind"
sys.exit(int(sys.argv[1]))
"""
SCRIPT = """
cd deep
echo words | GIVEN=this python ../show.py 3 "two words" || echo "code $?"
python ../show.py 0 || echo "code $?"
overnight validate nothing.yaml
echo never
"""


def test_a_command_of_a_script_has_what_a_process_has_and_leaves_nothing_behind(tmp_path: Path) -> None:
    import overnight.api.local_run  # noqa: F401 - its libraries set variables when they are imported

    (tmp_path / "deep").mkdir()
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "helper.py").write_text("NAME = 'a module'")
    before = os.getcwd(), os.environ.copy(), list(sys.path), sys.stdout
    ended = []
    done = warm_commands.run_script(
        SCRIPT, tmp_path, os.environ, lambda program, arguments, code: ended.append((program, arguments[0], code))
    )
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        f"{tmp_path}/deep this ['3', 'two words'] words a module",
        *("a child", "code 3", "code 1"),
    ]
    assert "an error\n" in done.stderr
    assert "KeyError: 'GIVEN'" in done.stderr
    assert "nothing.yaml" in done.stderr
    assert ended == [("python", "../show.py", 3), ("python", "../show.py", 1), ("overnight", "validate", 2)]
    assert before == (os.getcwd(), os.environ.copy(), list(sys.path), sys.stdout)
    assert "helper" not in sys.modules
